package refreshwait

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestReadKeys(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := context.Background()
		if got, err := ReadKeys(ctx, rdb, "proxy_refresh", "j1"); err != nil || got != (Keys{}) {
			t.Errorf("no keys: got %+v, %v", got, err)
		}
		for name, value := range map[string]string{"status": "PROCESSING", "total_chunks": "7", "completed_chunks": "3"} {
			rdb.Set(ctx, "proxy_refresh:j1:"+name, value, 0)
		}
		rdb.Set(ctx, "proxy_refresh:j2:status", "COMPLETE", 0)
		want := Keys{Status: Processing, TotalChunks: 7, CompletedChunks: 3}
		if got, err := ReadKeys(ctx, rdb, "proxy_refresh", "j1"); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		rdb.Set(ctx, "proxy_refresh:j1:total_chunks", "many", 0)
		if _, err := ReadKeys(ctx, rdb, "proxy_refresh", "j1"); err == nil {
			t.Error("got nil for an invalid total, want an error")
		}
	})
}
