package polite

// throttleKey is a hash: base, the shortest recent response time of a site; delay, the delay between requests due to response
// times; limited, the delay after 429; and limited_at, the time of the last counted 429; all in microseconds. It expires an hour
// after the last response.
func throttleKey(site string) string { return "muster:sites:throttle:" + site }

// failuresKey is a hash: pages, the number of pages of a site with a failed first attempt since the last fetched page; "via PROXY"
// for three proxies of failed requests; and direct, if one had no proxy. It expires ten minutes after the last failure.
func failuresKey(site string) string { return "muster:sites:failures:" + site }
