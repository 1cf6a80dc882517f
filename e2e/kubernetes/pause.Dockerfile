# The sandbox image of the bed's pods, packed by image/pack.py.
FROM scratch
COPY root/ /
USER 65535:65535
ENTRYPOINT ["/pause"]
