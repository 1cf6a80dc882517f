//! What can be wrong with bytes that arrive, and with a message that is to be sent.

/// Bytes that are no such message. Nothing of them was kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end within a value.
    #[error("{needed} bytes needed at position {position}, {remaining} left")]
    Truncated {
        /// Where the value starts, counted from the start of the frame.
        position: usize,
        /// Bytes that the value takes.
        needed: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// A length below -1, or -1 where null is not allowed.
    #[error("length {length} at position {position}")]
    BadLength {
        /// Behind the length.
        position: usize,
        /// The length as it was sent.
        length: i64,
    },
    /// An array claims more elements than the rest of the frame can hold.
    #[error("an array of {length} elements at position {position}, {remaining} bytes left")]
    ArrayTooLong {
        /// Behind the length.
        position: usize,
        /// Elements claimed.
        length: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// The decoded message would take many times the memory of its frame.
    #[error("the message would take too much memory for a frame of {frame} bytes")]
    TooMuchMemory {
        /// Bytes of the frame.
        frame: usize,
    },
    /// A varint that goes on past its type's width.
    #[error("varint too long at position {position}")]
    VarintTooLong {
        /// Behind the part that was read.
        position: usize,
    },
    /// A string that is not UTF-8.
    #[error("a string at position {position} is not UTF-8")]
    NotUtf8 {
        /// Where the string starts.
        position: usize,
    },
    /// Tags must ascend and appear once.
    #[error("tag {tag} after tag {previous}")]
    TagOrder {
        /// The tag before.
        previous: u32,
        /// The offending tag.
        tag: u32,
    },
    /// A tagged field that is shorter or longer than its own size says.
    #[error("tag {tag} says {size} bytes, its value takes {used}")]
    TagSize {
        /// The tag.
        tag: u32,
        /// Bytes that it claims.
        size: usize,
        /// Bytes that its value takes.
        used: usize,
    },
    /// A version that this crate has no codec for.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// The message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A record type, key version or marker that this crate does not know.
    #[error("unknown type {0}")]
    UnknownType(u32),
    /// A checksum that does not match.
    #[error("checksum {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// As the bytes say.
        stored: u32,
        /// As it should be.
        computed: u32,
    },
    /// Bytes behind the end of a value that should fill them.
    #[error("{0} bytes too many")]
    TrailingBytes(usize),
}

/// A message that cannot be written in the version asked for. Always a mistake of the caller, not of a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A version that this crate has no codec for.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// The message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A field that the version does not carry holds something other than its default, and may not be dropped.
    #[error("version {version} does not carry {field}")]
    FieldNotInVersion {
        /// `Struct.field`.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A null that the version does not allow.
    #[error("{field} may not be null in version {version}")]
    NullNotAllowed {
        /// `Struct.field`.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A value whose length does not fit its length field.
    #[error("{length} bytes or elements are too many")]
    TooLong {
        /// Bytes or elements.
        length: usize,
    },
    /// A decoded range has no bytes of its own and cannot be written again.
    #[error("records that are a range of another frame")]
    RecordsOfAnotherFrame,
}
