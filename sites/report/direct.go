package report

// Direct says that a scrape uses no proxies, and who decided it. Without a
// decision it is empty, and the definition and the settings of the worker count.
type Direct string

// Who can decide that a scrape uses no proxies.
const (
	// DirectAsked: the sender asked for it. All workers obey.
	DirectAsked Direct = "asked"
	// DirectUnproxied: the sender has no proxies, and the definition does not
	// say what to do then. A worker that has proxies uses them.
	DirectUnproxied Direct = "unproxied"
)
