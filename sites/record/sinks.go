package record

import (
	"context"
	"errors"
	"time"

	"muster/sites/sink"
)

// sinkTimeout limits the time of a sink for a batch, so that a hanging sink is reported.
const sinkTimeout = 2 * time.Minute

// sinks are the sinks of a job in addition to its files. They are opened on demand, and again after an error.
type sinks struct {
	addresses []string
	options   sink.Options
	open      map[string]sink.Sink // by address
	next      int                  // position in the sequence of records that a retry repeats
	delivered map[string]int       // received records of the sequence, by address
}

// sinkError is an error of a sink other than the files.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }

// put delivers the next records of a sequence to all sinks, even if some fail. When the sequence is repeated after a failure, a
// sink does not receive records twice.
func (s *sinks) put(ctx context.Context, records []sink.Record) error {
	var errs []error
	from := s.next
	s.next += len(records)
	for _, address := range s.addresses {
		received := max(s.delivered[address]-from, 0)
		if received >= len(records) {
			continue
		}
		n, err := s.putTo(ctx, address, records[received:])
		s.delivered[address] = from + received + n
		if err != nil {
			errs = append(errs, sinkError{err})
		}
	}
	return errors.Join(errs...)
}

func (s *sinks) putTo(ctx context.Context, address string, records []sink.Record) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, sinkTimeout)
	defer cancel()
	to, ok := s.open[address]
	if !ok {
		var err error
		if to, err = sink.Open(ctx, address, s.options); err != nil {
			return 0, err
		}
		s.open[address] = to
	}
	n, err := to.Put(ctx, records)
	if err != nil {
		delete(s.open, address) // its state is unknown
		err = errors.Join(err, to.Close())
	}
	return n, err
}
