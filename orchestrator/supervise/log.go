package supervise

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// logCheck is how often the size of a log file is checked.
const logCheck = 30 * time.Second

// keepLogSmall looks after the log file until ended is closed.
func (p *Process) keepLogSmall(ended <-chan struct{}) {
	tick := time.NewTicker(logCheck)
	defer tick.Stop()
	for {
		if err := moveLogAside(p.cfg.LogFile, p.cfg.MaxLog); err != nil {
			p.cfg.Logger.Warn("log file grows too large", "file", p.cfg.LogFile, "err", err)
		}
		select {
		case <-tick.C:
		case <-ended:
			return
		}
	}
}

// moving is held while a log is moved: two children may share one.
var moving sync.Mutex

// moveLogAside moves what a log file of more than max bytes holds to path+".1".
// The file itself stays: children have it open and append to it, so what they
// write in between may be lost.
func moveLogAside(path string, max int64) error {
	moving.Lock()
	defer moving.Unlock()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= max {
		return nil
	}
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path+".1", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, io.LimitReader(from, 2*max)); err != nil {
		_ = to.Close()
		return err
	}
	if err := to.Close(); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}

// LogTail returns the last bytes of a log file, at most max, cut at a line. It
// is empty when there is no such file.
func LogTail(path string, max int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from := info.Size() - max
	if from > 0 {
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, max))
	if err != nil {
		return ""
	}
	if from > 0 {
		for i, c := range b {
			if c == '\n' {
				return string(b[i+1:])
			}
		}
	}
	return string(b)
}
