package report

// Direct is the reason why a scrape uses no proxies. If it is empty, the definition and the settings of the worker decide.
type Direct string

// Reasons for a scrape without proxies.
const (
	// DirectAsked means that the sender requested it. All workers obey.
	DirectAsked Direct = "asked"
	// DirectUnproxied means that the sender has no proxies and the definition has no fallback. A worker with proxies uses them.
	DirectUnproxied Direct = "unproxied"
)
