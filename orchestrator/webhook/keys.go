package webhook

import "muster/orchestrator/event"

// The keys of endpoints are in the slot of jobs, because the first endpoint starts the relay of events. The keys of deliveries
// are in the slot of their queue. None expires.

// endpointsKey is a hash: id of an endpoint → its record as JSON.
const endpointsKey = "muster:{jobs}:webhooks"

// namesKey is a hash: name of an endpoint → its id.
const namesKey = endpointsKey + ":names"

// offKey is a hash: id of an endpoint of the configuration that is disabled → the reason.
const offKey = endpointsKey + ":off"

// relayKey is a string: the relaying process. Expires after a few rounds of the relay.
const relayKey = endpointsKey + ":relay"

// endpointKeys returns the keys of the scripts for endpoints.
func endpointKeys() []string {
	return []string{endpointsKey, namesKey, event.RelayedKey(), event.AllKey()}
}

// queueName is the name of the queue of deliveries, and its slot.
const queueName = "webhooks"

const deliveries = "muster:{" + queueName + "}:"

// logKey is a sorted set: the messages for an endpoint, by the unix ms of their events; see scoreOf. The relay trims it and
// removes their items.
func logKey(endpoint string) string { return deliveries + "log:" + endpoint }

// numbersKey is a hash of an endpoint: last_ok, last_failure, given_up (unix ms) and last_error. Expires 30 days after the last
// attempt.
func numbersKey(endpoint string) string { return deliveries + "numbers:" + endpoint }
