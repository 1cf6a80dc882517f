//! Reading and writing the fixed-width fields of the old, inflexible versions that the null broker speaks.

/// Reads fields one after the other. A frame that is too short ends the connection's task: the client is trusted.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn at(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[self.position..self.position + N]);
        self.position += N;
        field
    }

    pub(crate) fn i8(&mut self) -> i8 {
        i8::from_be_bytes(self.take())
    }

    pub(crate) fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take())
    }

    pub(crate) fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take())
    }

    pub(crate) fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take())
    }

    /// A length that is never negative in what librdkafka sends.
    pub(crate) fn length(&mut self) -> usize {
        usize::try_from(self.i32()).unwrap_or_default()
    }

    /// A string; a null one is empty.
    pub(crate) fn string(&mut self) -> &'a str {
        let length = usize::try_from(self.i16()).unwrap_or_default();
        let bytes = &self.bytes[self.position..self.position + length];
        self.position += length;
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// Appends fields.
pub(crate) trait Writer {
    fn i16(&mut self, value: i16);
    fn i32(&mut self, value: i32);
    fn i64(&mut self, value: i64);
    fn string(&mut self, value: &str);
}

impl Writer for Vec<u8> {
    fn i16(&mut self, value: i16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn i64(&mut self, value: i64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn string(&mut self, value: &str) {
        self.i16(value.len() as i16);
        self.extend_from_slice(value.as_bytes());
    }
}
