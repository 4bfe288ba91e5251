# The image holds one file, muster, and runs it as nobody in particular.
#
#   docker build -t muster .
#   docker run --rm muster demo

FROM golang:1.26-alpine AS build
WORKDIR /src
# The modules come first: they change less often than the code.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -tags timetzdata -ldflags "-s -w -X main.version=$VERSION" -o /out/muster ./cmd/muster \
    # An empty image has no folder that its user may write to.
    && mkdir -p /out/data /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chown=65532:65532 /out/ /
USER 65532:65532
WORKDIR /data
ENV MUSTER_DATA_DIR=/data MUSTER_LOG__FORMAT=json
VOLUME /data
# 0 as long as Redis and a worker answer.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["/muster", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/muster"]
CMD ["start"]
