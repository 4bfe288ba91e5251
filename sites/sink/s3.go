package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// An Uploader is a sink for the files of a job.
type Uploader interface {
	// Upload stores a finished file under a name with slashes. An interrupted upload leaves no object; repeating it replaces the
	// object.
	Upload(ctx context.Context, file, name string) error
}

// bucket is a sink that stores the files of a job as objects, when they are finished. It ignores records.
type bucket struct {
	client       *minio.Client
	name, prefix string
	partSize     uint64
}

// openBucket connects to s3://BUCKET/PREFIX and checks that objects can be written, by an upload without parts. Endpoint, region and
// keys are from the environment variables and files of the AWS CLI.
func openBucket(ctx context.Context, address string) (*bucket, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com"))
	if err != nil || endpoint.Host == "" {
		return nil, errors.New("invalid AWS_ENDPOINT_URL; use a URL such as https://minio.example:9000")
	}
	region := cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if region == "" && !strings.HasSuffix(endpoint.Hostname(), "amazonaws.com") {
		region = "us-east-1" // otherwise the client looks it up, which a key may forbid
	}
	keys := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}})
	if v, err := keys.GetWithContext(&credentials.CredContext{Client: http.DefaultClient}); err != nil || v.AccessKeyID == "" {
		return nil, fmt.Errorf("%s: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE of ~/.aws/credentials", address)
	}
	b := &bucket{name: u.Host, prefix: strings.Trim(u.Path, "/"), partSize: 16 << 20}
	b.client, err = minio.New(endpoint.Host, &minio.Options{Creds: keys, Secure: endpoint.Scheme == "https", Region: region, MaxRetries: 3})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	core, key := minio.Core{Client: b.client}, path.Join(b.prefix, ".muster-check")
	id, err := core.NewMultipartUpload(ctx, b.name, key, minio.PutObjectOptions{})
	if err == nil {
		err = core.AbortMultipartUpload(ctx, b.name, key, id)
	}
	return b, b.explain(err, "open")
}

// Put implements Sink.
func (b *bucket) Put(_ context.Context, records []Record) (int, error) { return len(records), nil }

// Close implements Sink.
func (b *bucket) Close() error { return nil }

// Upload implements Uploader. It first removes the parts of earlier uploads of the object.
func (b *bucket) Upload(ctx context.Context, file, name string) error {
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Duration(info.Size()>>16)*time.Second) // at 64 KiB/s
	defer cancel()
	key := path.Join(b.prefix, name)
	err = b.client.RemoveIncompleteUpload(ctx, b.name, key)
	if code := minio.ToErrorResponse(err).Code; err == nil || code == "AccessDenied" || code == "NotImplemented" { // a key may forbid listing
		types := map[string]string{".jsonl": "application/x-ndjson", ".csv": "text/csv; charset=utf-8"}
		_, err = b.client.FPutObject(ctx, b.name, key, file, minio.PutObjectOptions{
			PartSize: b.partSize, ContentType: types[path.Ext(name)], DisableContentSha256: true, // in chunks with signatures, which not all stores decode
		})
	}
	return b.explain(err, "upload "+name+" to")
}

// explain names the bucket and the remedy in an error.
func (b *bucket) explain(err error, doing string) error {
	if err == nil {
		return nil
	}
	remedy := map[string]string{
		"NoSuchBucket":          "create the bucket, or correct the address or AWS_ENDPOINT_URL",
		"InvalidAccessKeyId":    "check AWS_ACCESS_KEY_ID",
		"SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY and AWS_REGION",
		"RequestTimeTooSkewed":  "set the clock of this machine",
		"AccessDenied":          "the key needs s3:PutObject and s3:AbortMultipartUpload for the prefix",
		"XMinioStorageFull":     "free space in the store",
		"QuotaExceeded":         "free space in the bucket",
	}[minio.ToErrorResponse(err).Code]
	err = fmt.Errorf("%s s3://%s/%s: %w", doing, b.name, b.prefix, err)
	if remedy != "" {
		err = fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}
