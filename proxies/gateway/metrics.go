package gateway

import "github.com/prometheus/client_golang/prometheus"

var (
	requestsTotal = prometheus.NewDesc("muster_gateway_requests_total", "Plain HTTP requests of authorized clients.", nil, nil)
	tunnelsTotal  = prometheus.NewDesc("muster_gateway_tunnels_total", "Tunnels requested by CONNECT or SOCKS5.", nil, nil)
	failuresTotal = prometheus.NewDesc("muster_gateway_failures_total", "Failed requests and tunnels by reason: refused (wrong credentials), no_proxy (no usable proxy) or failed (all attempted proxies failed).", []string{"reason"}, nil)
	clientsNow    = prometheus.NewDesc("muster_gateway_clients", "Open client connections.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g *Gateway) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requestsTotal, tunnelsTotal, failuresTotal, clientsNow} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *Gateway) Collect(ch chan<- prometheus.Metric) {
	s := g.Stats()
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(requestsTotal, s.Requests)
	count(tunnelsTotal, s.Tunnels)
	count(failuresTotal, s.Refused, "refused")
	count(failuresTotal, s.NoProxy, "no_proxy")
	count(failuresTotal, s.Failed, "failed")
	ch <- prometheus.MustNewConstMetric(clientsNow, prometheus.GaugeValue, float64(s.Active))
}
