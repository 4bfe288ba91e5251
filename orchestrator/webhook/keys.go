package webhook

import "muster/orchestrator/event"

// The keys of endpoints are in the slot of jobs, because the first endpoint starts the relay of events. The keys of deliveries
// are in the slot of their queue. None expires.

// endpointsKey is a hash: id of an endpoint → its record as JSON.
const endpointsKey = "muster:{jobs}:webhooks"

// namesKey is a hash: name of an endpoint → its id.
const namesKey = endpointsKey + ":names"

// staticKey is a sorted set: id of an endpoint of the configuration → unix ms of its last announcement by a process.
const staticKey = endpointsKey + ":static"

// relayKey is a string: the relaying process. Expires after a few rounds of the relay.
const relayKey = endpointsKey + ":relay"

// endpointKeys returns the keys of the scripts for endpoints.
func endpointKeys() []string {
	return []string{endpointsKey, namesKey, staticKey, event.RelayedKey(), event.AllKey()}
}

// queueName is the name of the queue of deliveries, and its slot.
const queueName = "webhooks"

const deliveries = "muster:{" + queueName + "}:"

// logKey is a sorted set: the messages for an endpoint, by the unix ms of their events; see scoreOf. The relay trims it and
// removes their items.
func logKey(endpoint string) string { return deliveries + "log:" + endpoint }

// numbersKey is a hash of an endpoint: delivered, given_up (numbers), last_ok, last_failure, failing, given_up_at (unix ms;
// failing and given_up_at since the last success) and last_error. Deleted with the log of a removed endpoint.
func numbersKey(endpoint string) string { return deliveries + "numbers:" + endpoint }

// attemptsKey is a hash: id of a delivery → its last attempt as JSON. An entry is deleted with its entry in the log.
const attemptsKey = deliveries + "attempts"

// openKey is a sorted set: ids of the deliveries that have not ended, by the unix ms since which they wait.
const openKey = deliveries + "open"

// removedKey is a sorted set: removed endpoints whose log is not deleted yet, by removal time (unix ms).
const removedKey = deliveries + "removed"
