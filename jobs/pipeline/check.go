package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"muster/internal/nearest"
	"muster/internal/yamlstrict"
)

// Bounds of a pipeline.
const (
	maxStages      = 20
	maxLabels      = 50
	maxContext     = 20
	maxStates      = 20 // of a stage
	maxRetries     = 100
	maxDescription = 1000 // characters
	minTime        = time.Second
	maxTime        = 168 * time.Hour
)

// The timeouts of stages that give none.
const (
	defaultItemTimeout = 10 * time.Minute
	defaultJobTimeout  = time.Hour

	defaultStuckAfter = time.Hour // the default of the setting jobs.stuck_after
)

var (
	nameForm = form{regexp.MustCompile(`^[a-z0-9_-]{1,40}$`), "write up to 40 of a-z, 0-9, _ and -"}
	taskForm = form{regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$`), "write the name of a task in Go, as in news:summarize"}
	wordForm = form{regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`), "write up to 100 of A-Z, a-z, 0-9, _, . and -"}
)

// form is the syntax of a name.
type form struct {
	match *regexp.Regexp
	write string // advice
}

// setDefaults sets the timeouts of stages without one, and the states of stages that take items.
func (p *Pipeline) setDefaults() {
	for i := range p.Stages {
		s := &p.Stages[i]
		if s.Takes != TakesItem {
			if s.Timeout == 0 {
				s.Timeout = defaultJobTimeout
			}
			continue
		}
		if s.Timeout == 0 {
			s.Timeout = defaultItemTimeout
		}
		if len(s.States) == 0 {
			s.States = map[string]string{"accept": Integrated, "reject": Rejected}
		}
	}
}

// checker finds the mistakes in a pipeline.
type checker struct {
	file     string
	places   map[string]yamlstrict.Place // of the keys in the file
	problems Problems
}

// fail records an invalid value of a key. A value has at most one problem: after a decoding error it is not
// validated.
func (c *checker) fail(key, format string, args ...any) {
	if slices.ContainsFunc(c.problems, func(p *Problem) bool { return p.Key == key }) {
		return
	}
	at := c.place(key)
	c.problems = append(c.problems, &Problem{File: c.file, At: at, Key: key, Text: fmt.Sprintf(format, args...)})
}

// place is where a key is in the file, or else the mapping or list that it is missing in.
func (c *checker) place(key string) yamlstrict.Pos {
	for {
		if at, ok := c.places[key]; ok || key == "" {
			return at.At
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
}

// isSet reports whether the file contains a key.
func (c *checker) isSet(key string) bool {
	_, ok := c.places[key]
	return ok
}

func (c *checker) check(p *Pipeline) {
	if !nameForm.match.MatchString(p.Name) {
		c.fail("name", "%q cannot be the name of a pipeline; %s", p.Name, nameForm.write)
	}
	if n := utf8.RuneCountInString(p.Description); n > maxDescription {
		c.fail("description", "has %d characters; write at most %d", n, maxDescription)
	}
	c.duration("stuck_after", p.StuckAfter)
	c.duration("timeout", p.Timeout)
	c.names("labels", p.Labels, maxLabels)
	if !slices.Equal(p.Context, []string{AnyContext}) {
		c.names("context", p.Context, maxContext)
	}
	switch {
	case len(p.Stages) == 0:
		c.fail("stages", "is missing; list at least one stage")
	case len(p.Stages) > maxStages:
		c.fail("stages", "has %d stages; a pipeline may have %d", len(p.Stages), maxStages)
	}
	first := map[string]int{} // the stage with a name
	for i := range p.Stages {
		s, key := &p.Stages[i], fmt.Sprintf("stages[%d]", i)
		c.stage(s, key)
		// An agent that works for longer would be taken for a stuck one.
		if stuck := cmp.Or(p.StuckAfter, defaultStuckAfter); c.isSet(key+".timeout") && s.Timeout > stuck {
			c.fail(key+".timeout", "%v is above stuck_after, which is %v; lower it, or write stuck_after: %v", s.Timeout, stuck, s.Timeout)
		}
		if other, ok := first[s.Name]; ok && s.Name != "" {
			c.fail(key+".name", "%q is the name of stages[%d] already; rename one", s.Name, other)
		} else {
			first[s.Name] = i
		}
		if i == 0 && s.Takes == TakesItem {
			c.fail(key+".takes", "is item, but no stage before this one makes items; the first stage takes the job")
		}
	}
}

func (c *checker) stage(s *Stage, key string) {
	if s.Name == "" {
		c.fail(key+".name", "is missing; give the stage a name")
	} else {
		c.name(key+".name", s.Name, nameForm)
	}
	role, task := c.isSet(key+".role"), c.isSet(key+".task")
	switch {
	case role && task:
		c.fail(key+".task", "role and task exclude each other; take one out")
	case role:
		c.name(key+".role", s.Role, nameForm)
	case task:
		c.name(key+".task", s.Task, taskForm)
	default:
		c.fail(key+".role", "is missing; write role: and the role of the agents that do the work, or task: and a task in Go")
	}
	switch s.Takes {
	case TakesItem:
	case TakesJob:
		c.jobOnly(s, key)
	case "":
		c.fail(key+".takes", "is missing; write takes: job or takes: item")
	default:
		c.fail(key+".takes", "want job or item, got %q%s", s.Takes, nearest.Hint(s.Takes, []string{TakesJob, TakesItem}))
	}
	c.states(key+".states", s.States)
	c.duration(key+".timeout", s.Timeout)
	if n := s.MaxRetries; n != nil && (*n < 0 || *n > maxRetries) {
		c.fail(key+".max_retries", "must be between 0 and %d, got %d; omit the key to use the setting jobs.max_retries", maxRetries, *n)
	}
}

// jobOnly rejects keys that a stage that takes the job cannot have.
func (c *checker) jobOnly(s *Stage, key string) {
	if len(s.States) > 0 {
		c.fail(key+".states", "verdicts are given on items; take the key out, or write takes: item")
	}
	if s.Review {
		c.fail(key+".review", "only items can wait for review; take the key out, or write takes: item")
	}
}

func (c *checker) states(key string, states map[string]string) {
	if len(states) > maxStates {
		c.fail(key, "has %d verdicts; a stage may have %d", len(states), maxStates)
		return
	}
	for _, verdict := range slices.Sorted(maps.Keys(states)) {
		at, state := yamlstrict.Join(key, verdict), states[verdict]
		c.name(at, verdict, nameForm)
		if state == Integrated || state == Rejected {
			continue
		}
		c.fail(at, "want integrated or rejected, which a verdict leads to, got %q%s; only the name of the verdict is free", state, nearest.Hint(state, []string{Integrated, Rejected}))
	}
}

func (c *checker) duration(key string, d time.Duration) {
	if c.isSet(key) && (d < minTime || d > maxTime) {
		c.fail(key, "want a time from 1s to 168h, got %s", d)
	}
}

func (c *checker) name(key, name string, f form) {
	if !f.match.MatchString(name) {
		c.fail(key, "%q cannot be used here; %s", name, f.write)
	}
}

// names checks a list of names that differ from each other.
func (c *checker) names(key string, names []string, most int) {
	if len(names) > most {
		c.fail(key, "has %d names; a pipeline may have %d", len(names), most)
		return
	}
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", key, i)
		c.name(at, name, wordForm)
		if slices.Contains(names[:i], name) {
			c.fail(at, "%q is in the list already; take one out", name)
		}
	}
}
