# What the Kubernetes tests run as a client in a pod: kcat, and busybox as its shell. Packed by image/pack.py.
FROM scratch
COPY root/ /
USER 10001:10001
LABEL org.opencontainers.image.title="Taffrail test client"
