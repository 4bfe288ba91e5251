package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"muster/internal/atomicfile"
	"muster/internal/trust"
	"muster/orchestrator/access"
	"muster/orchestrator/api"
	"muster/orchestrator/api/client"
	"muster/orchestrator/config"
)

// localAPI is the content of the file in the data directory that lets commands on the same machine call the API of a
// running orchestrator.
type localAPI struct {
	URL   string `json:"url"`
	Key   string `json:"key"`
	Redis string `json:"redis"` // SHA-256 of redis.url of the orchestrator, in hex
}

func localAPIFile(cfg config.Config) string { return filepath.Join(cfg.DataDir, "api.json") }

func redisSum(cfg config.Config) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(cfg.Redis.URL)))
}

// publishAPI writes the file for commands of this user and returns a function that removes it.
func publishAPI(cfg config.Config, url, key string) (remove func(), err error) {
	file, at := localAPIFile(cfg), localAPI{url, key, redisSum(cfg)}
	err = atomicfile.Write(file, 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(at) })
	if err != nil {
		return nil, fmt.Errorf("write the address of the API for commands: %w", err)
	}
	return func() {
		if now, err := readLocalAPI(cfg); err == nil && now == at { // else another orchestrator has replaced it
			_ = os.Remove(file)
		}
	}, nil
}

func readLocalAPI(cfg config.Config) (localAPI, error) {
	f, err := trust.Open(localAPIFile(cfg))
	if err != nil {
		return localAPI{}, err
	}
	defer f.Close()
	var at localAPI
	err = json.NewDecoder(io.LimitReader(f, 1<<16)).Decode(&at)
	return at, err
}

// localTime is the response timeout for a running orchestrator.
const localTime = 2 * time.Second

// LocalAPI returns a client of the orchestrator that runs on this machine with the data directory and the Redis of cfg,
// or nil if none responds.
func LocalAPI(ctx context.Context, cfg config.Config) (*client.Client, error) {
	at, err := readLocalAPI(cfg)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the address of the running orchestrator: %w", err)
	}
	if cfg.Redis.URL != "" && at.Redis != redisSum(cfg) {
		return nil, nil
	}
	c, err := client.New(client.Config{URL: at.URL, Key: at.Key})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", localAPIFile(cfg), err)
	}
	ctx, cancel := context.WithTimeout(ctx, localTime)
	defer cancel()
	if _, err := client.GetCaller.Call(ctx, c, client.None{}); err != nil { // it was killed, and its port may belong to another program
		return nil, nil
	}
	return c, nil
}

// APIClient returns a client that calls the API in this process with the rights of the command line.
func (o *Orchestrator) APIClient() (*client.Client, error) {
	served, err := o.apiConfig()
	if err != nil {
		return nil, err
	}
	key := access.NewLocalKey()
	served.Gate.SetLocal(key)
	handler, err := api.Handler(served)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: "http://localhost", Key: key, Transport: client.Handler(handler)})
}
