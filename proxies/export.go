package proxies

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"muster/internal/atomicfile"
)

// Export writes the usable proxies of the pool to files in dir, in the given formats or in all of Formats. Proxies
// are sorted by latency; proxies without a latency come last. Each file is replaced atomically. The files contain
// credentials and are accessible to their owner only. Export returns the number of proxies.
func (p *Pool) Export(ctx context.Context, dir string, formats ...string) (int, error) {
	chosen, err := FormatsOf(formats)
	if err != nil {
		return 0, fmt.Errorf("export proxies: %w", err)
	}
	list, err := exportProxies(ctx, p)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("export proxies: %w", err)
	}
	for _, f := range chosen {
		content, err := f.encode(list)
		if err == nil {
			err = atomicfile.WriteBytes(filepath.Join(dir, f.File), 0o600, content)
		}
		if err != nil {
			return 0, fmt.Errorf("export proxies as %s: %w", f.Name, err)
		}
	}
	return len(list), nil
}

// ExportTo writes the usable proxies of the pool to w in one format, in the order of Export.
func (p *Pool) ExportTo(ctx context.Context, w io.Writer, format string) error {
	chosen, err := FormatsOf([]string{format})
	if err != nil {
		return fmt.Errorf("export proxies: %w", err)
	}
	list, err := exportProxies(ctx, p)
	if err != nil {
		return err
	}
	content, err := chosen[0].encode(list)
	if err == nil {
		_, err = w.Write(content)
	}
	if err != nil {
		return fmt.Errorf("export proxies as %s: %w", format, err)
	}
	return nil
}

// exportProxies returns the proxies to export.
func exportProxies(ctx context.Context, p *Pool) ([]Proxy, error) {
	members, err := p.List(ctx, Filter{})
	if err != nil {
		return nil, fmt.Errorf("export proxies: %w", err)
	}
	list := make([]Proxy, len(members))
	for i, m := range members {
		list[i] = m.Proxy
	}
	return list, nil
}
