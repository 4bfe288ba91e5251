package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/jobs"
	"muster/jobs/pipeline"
)

// Bounds of the text.
const (
	width     = 80 // columns
	nameWidth = 16 // of the names before values
	shownIDs  = 20 // integrated items
	shownRows = 20 // agents, and counters of usage
	maxText   = 4000
)

// Text writes the summary for people, in lines of at most 80 characters. Sections without content are left out.
func (s *Summary) Text(w io.Writer) error {
	var p page
	s.overview(&p)
	s.items(&p)
	s.labels(&p)
	s.usage(&p)
	s.agents(&p)
	s.writeIntegrated(&p)
	s.results(&p)
	if s.ErrorMessage != "" {
		p.section("ERROR")
		p.paragraph("  ", s.ErrorMessage)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

func (s *Summary) overview(p *page) {
	p.section("OVERVIEW")
	p.row("Job ID", s.JobID)
	p.row("Pipeline", s.Name)
	p.row("Status", string(s.Status))
	for _, stage := range s.Stages {
		text := string(stage.Status)
		if stage.Error != "" {
			text += ": " + stage.Error
		}
		p.row("Stage "+stage.Name, text)
	}
	p.row("Created", when(s.CreatedAt))
	p.row("Completed", when(s.CompletedAt))
	p.row("Duration", time.Duration(s.DurationSeconds*float64(time.Second)).Round(time.Second).String())
	p.row("Document", s.DocumentPath)
	p.row("Prompt", s.Prompt)
}

// ofRequirements reports whether the job is of the pipeline for documents, whose items are requirements and whose labels
// are laws.
func (s *Summary) ofRequirements() bool {
	return s.Name == pipeline.Default
}

func (s *Summary) items(p *page) {
	heading := "ITEMS"
	if s.ofRequirements() {
		heading = "REQUIREMENTS"
	}
	p.section(heading)
	c := s.Items
	p.row("Total", fmt.Sprint(c.Total))
	p.row("Pending", fmt.Sprint(c.Pending))
	p.row("Validating", fmt.Sprint(c.Validating))
	p.row("Integrated", fmt.Sprint(c.Integrated))
	p.row("Rejected", fmt.Sprint(c.Rejected))
	p.row("Failed", fmt.Sprint(c.Failed))
	p.row("Review", fmt.Sprint(c.Review))
	p.row("Progress", fmt.Sprintf("%.1f %%", s.Percent))
	unique := fmt.Sprint(s.Citations.Unique)
	if s.Citations.AtLeast {
		unique = "at least " + unique
	}
	if s.Citations.Total > 0 {
		p.row("Citations", fmt.Sprintf("%d, %s unique", s.Citations.Total, unique))
	}
	if s.ByPriority.High.Total+s.ByPriority.Medium.Total+s.ByPriority.Low.Total == 0 {
		return
	}

	p.section("By Priority")
	const format = "  %-7s%9v%10v%12v%12v%10v%8v%8v\n"
	fmt.Fprintf(p, format, "", "total", "pending", "validating", "integrated", "rejected", "failed", "review")
	for _, row := range []struct {
		name string
		c    jobs.Counts
	}{{"high", s.ByPriority.High}, {"medium", s.ByPriority.Medium}, {"low", s.ByPriority.Low}} {
		c := row.c
		fmt.Fprintf(p, format, row.name, c.Total, c.Pending, c.Validating, c.Integrated, c.Rejected, c.Failed, c.Review)
	}
}

func (s *Summary) labels(p *page) {
	if len(s.ByLabel) == 0 {
		return
	}
	heading := "Labels"
	if s.ofRequirements() {
		heading = "Compliance Relevance"
	}
	p.section(heading)
	for _, label := range slices.Sorted(maps.Keys(s.ByLabel)) {
		p.row(label, fmt.Sprint(s.ByLabel[label]))
	}
}

func (s *Summary) usage(p *page) {
	if len(s.Usage) == 0 {
		return
	}
	p.section("USAGE")
	p.counters("", s.Usage)
}

// assignments is the name in the usage of an agent of how many assignments it has completed.
const assignments = "assignments"

// agents lists the agents in descending order of items.
func (s *Summary) agents(p *page) {
	all := map[string]bool{}
	for name := range s.ByAgent {
		all[name] = true
	}
	for name := range s.UsageByAgent {
		all[name] = true
	}
	if len(all) == 0 {
		return
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.ByAgent[b].Total, s.ByAgent[a].Total), cmp.Compare(a, b))
	})
	p.section("By Agent")
	for i, name := range names {
		if i == shownRows {
			p.paragraph("  ", fmt.Sprintf("and %d agents more", len(names)-i))
			break
		}
		p.paragraph("  ", name)
		if c := s.ByAgent[name]; c.Total > 0 {
			p.row("  items", states(c))
		}
		usage := maps.Clone(s.UsageByAgent[name])
		if n, ok := usage[assignments]; ok {
			p.row("  assignments", fmt.Sprint(n))
			delete(usage, assignments)
		}
		p.counters("  ", usage)
	}
}

// states are the numbers of items that are not 0.
func states(c jobs.Counts) string {
	var parts []string
	for _, state := range []jobs.ItemStatus{jobs.ItemIntegrated, jobs.ItemRejected, jobs.ItemFailed, jobs.ItemReview, jobs.ItemValidating, jobs.ItemPending} {
		if n := *c.Of(state); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprint(c.Total)
	}
	return fmt.Sprintf("%d: %s", c.Total, strings.Join(parts, ", "))
}

func (s *Summary) writeIntegrated(p *page) {
	if len(s.IntegratedIDs) == 0 {
		return
	}
	p.section("INTEGRATED")
	shown := s.IntegratedIDs[:min(len(s.IntegratedIDs), shownIDs)]
	if total := max(s.Items.Integrated, int64(len(s.IntegratedIDs))); total > shownIDs {
		p.paragraph("  ", fmt.Sprintf("The first %d of %d:", shownIDs, total))
	}
	for _, id := range shown {
		p.paragraph("  ", id)
	}
}

// results prints the results of the stages that take the job.
func (s *Summary) results(p *page) {
	for _, stage := range s.Stages {
		if len(stage.Result) > 0 {
			p.section("RESULT OF STAGE " + stage.Name)
			p.paragraph("  ", string(stage.Result))
		}
	}
}

// when is a time for people; "" if there is none.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// page is a text in lines of at most width characters.
type page struct{ strings.Builder }

func (p *page) section(name string) {
	if p.Len() > 0 {
		p.WriteString("\n")
	}
	p.WriteString(name + "\n")
}

// row writes a name and a value, unless one is empty.
func (p *page) row(name, value string) {
	if name == "" || value == "" {
		return
	}
	word := strings.TrimLeft(name, " ")
	name = name[:len(name)-len(word)] + clip.Clean(word, width/2)
	pad := strings.Repeat(" ", max(nameWidth-len([]rune(name)), 2))
	p.wrap("  "+name+pad, strings.Repeat(" ", nameWidth+2), value)
}

// counters writes the counters of usage.
func (p *page) counters(indent string, of map[string]int64) {
	for i, name := range slices.Sorted(maps.Keys(of)) {
		if i == shownRows {
			p.paragraph("  "+indent, fmt.Sprintf("and %d more", len(of)-i))
			return
		}
		p.row(indent+name, fmt.Sprint(of[name]))
	}
}

func (p *page) paragraph(indent, text string) { p.wrap(indent, indent, text) }

// wrap writes a text in lines of at most width characters: after first, and then after indent. Words that are longer
// than a line are cut into pieces.
func (p *page) wrap(first, indent, text string) {
	line, used, begun := first, len([]rune(first)), false
	flush := func() {
		p.WriteString(strings.TrimRight(line, " ") + "\n")
		line, used, begun = indent, len([]rune(indent)), false
	}
	for _, word := range strings.Fields(clip.Clean(text, maxText)) {
		rest := []rune(word)
		if begun && used+1+len(rest) > width {
			flush()
		}
		if begun {
			line, used = line+" ", used+1
		}
		for used+len(rest) > width {
			n := width - used
			line += string(rest[:n])
			rest = rest[n:]
			flush()
		}
		line, used, begun = line+string(rest), used+len(rest), true
	}
	if begun || line != indent {
		flush()
	}
}
