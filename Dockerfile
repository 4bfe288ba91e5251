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
# The HTTP interface and the pages, once MUSTER_API__LISTEN=0.0.0.0:8000 and MUSTER_API__KEYS are set.
EXPOSE 8000
# The image has no curl: muster asks for http://localhost:8000/health itself, and ends with 0 if the answer is 200. A
# container that serves no HTTP interface, such as a worker, has "muster health" instead; see docker-compose.yml.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["/muster", "health", "--url", "http://localhost:8000/health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/muster"]
CMD ["start"]
