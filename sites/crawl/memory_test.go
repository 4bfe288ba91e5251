package crawl

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/testutil"
)

func TestMemoryBoundsPagesParsedAtOnce(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	m := newMemory(64 * mb) // 48 for pages
	first, err := m.enter(t.Context(), 2*mb)
	testutil.Ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := m.enter(ctx, 3*mb); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a timeout of the page that exceeds the memory", err)
	}
	var larger errgroup.Group // than the whole memory
	larger.Go(func() error {
		leave, err := m.enter(t.Context(), 100*mb)
		if err == nil {
			leave()
		}
		return err
	})
	first()
	testutil.Ok(t, larger.Wait())
	if !m.room.TryAcquire(m.size) {
		t.Error("got memory that is still in use, want none")
	}

	leave, err := newMemory(0).enter(t.Context(), 1<<50)
	testutil.Ok(t, err)
	leave()
}
