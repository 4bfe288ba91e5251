package supervise

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// logCheck is the interval between checks of the size of a log file.
const logCheck = 30 * time.Second

// limitLog limits the size of the log file until done is closed.
func (p *Process) limitLog(done <-chan struct{}) {
	tick := time.NewTicker(logCheck)
	defer tick.Stop()
	for {
		if err := rotateLog(p.cfg.LogFile, p.cfg.MaxLog); err != nil {
			p.cfg.Logger.Warn("cannot rotate the log file", "file", p.cfg.LogFile, "err", err)
		}
		select {
		case <-tick.C:
		case <-done:
			return
		}
	}
}

// rotating serializes rotations, because children may share a log file.
var rotating sync.Mutex

// rotateLog moves the content of a log file larger than max bytes to path+".1". Children keep the file open and append to it,
// so lines that they write during the rotation may be lost.
func rotateLog(path string, max int64) error {
	rotating.Lock()
	defer rotating.Unlock()
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

// LogTail returns at most the last max bytes of a log file, starting at a line. It returns "" if the file does not exist.
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
