package supervise

import (
	"io"
	"os"
)

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
