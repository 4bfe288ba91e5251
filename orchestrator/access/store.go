package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/luascript"
)

const (
	maxKeys   = 1000             // maximum number of stored keys
	cacheFor  = 2 * time.Second  // lifetime of a cached key
	staleFor  = 10 * time.Minute // lifetime of a cached key while Redis is unavailable
	usedEvery = time.Minute      // minimum interval between updates of the last use of a key
	prefix    = "muster_"        // prefix of the string form of a key
)

// Errors of Keys.
var (
	ErrNoKey       = errors.New("key not found; see muster keys list")
	ErrTooManyKeys = fmt.Errorf("limit of %d keys reached; revoke unused keys", maxKeys)
)

// KeyError means that a field of a new key, or a name, is invalid.
type KeyError struct{ Field, Why string }

// Error returns the field and the reason.
func (e *KeyError) Error() string { return e.Field + ": " + e.Why }

// Key is a stored key, without its secret.
type Key struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"` // keys of the same name share the ownership of agents
	Role       Role      `json:"role"`
	AgentRoles []string  `json:"agent_roles,omitempty"` // agent roles that a key of the role agent may use; empty: any
	Created    time.Time `json:"created_at"`
	Expires    time.Time `json:"expires_at,omitzero"` // zero: never
	Revoked    time.Time `json:"revoked_at,omitzero"` // zero: not revoked
	Used       time.Time `json:"used_at,omitzero"`    // last use, accurate to a minute; zero: never
}

// State returns "active", "expired", "revoked", or "damaged" for an undecodable record.
func (k Key) State(now time.Time) string {
	switch {
	case k.Role == "":
		return "damaged"
	case !k.Revoked.IsZero():
		return "revoked"
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return "expired"
	}
	return "active"
}

// stored is a key with the hash of its secret.
type stored struct {
	Key
	hash []byte
}

// Keys are the API keys in Redis. They are safe for concurrent use by any number of processes.
//
// A secret consists of 32 random bytes, so its SHA-256 cannot be reversed by brute force. A slow password hash would only add
// load.
type Keys struct {
	rdb  redis.UniversalClient
	keys keys
	now  func() time.Time

	mu    sync.Mutex // guards the fields below
	cache map[string]cached
	names map[string]bool // names of active keys
	named time.Time       // time at which names was read
	known time.Time       // time at which any was read; zero: never
	any   bool            // a key has been created; never reset
}

// cached is a key with the time at which it was read.
type cached struct {
	stored
	at time.Time
}

// NewKeys returns the keys in a Redis. It does not connect.
func NewKeys(rdb redis.UniversalClient) *Keys {
	return &Keys{rdb: rdb, keys: newKeys(), now: time.Now, cache: map[string]cached{}}
}

// NewKey contains the parameters of Create.
type NewKey struct {
	Name       string    // 1 to 60 letters, digits, . _ : @ and -
	Role       Role      // one of Roles
	AgentRoles []string  // agent roles for a key of the role agent; default: any
	Expires    time.Time // default: never
}

// agentRole matches valid roles of agents.
var agentRole = regexp.MustCompile(`^[a-z0-9_-]{1,40}$`)

// maxAgentRoles is the maximum number of agent roles of a key.
const maxAgentRoles = 20

var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,59}$`)

// Create stores a key and returns it with its string form, which is not stored and can be displayed only once. It returns
// ErrTooManyKeys, or a *KeyError for an invalid parameter. At the limit, it replaces the oldest revoked or expired
// key.
func (k *Keys) Create(ctx context.Context, n NewKey) (Key, string, error) {
	now := k.now().UTC().Truncate(time.Millisecond)
	switch {
	case !keyName.MatchString(n.Name):
		return Key{}, "", &KeyError{"name", "use 1 to 60 letters, digits, . _ : @ and -, and begin with a letter or digit"}
	case !slices.Contains(Roles, n.Role):
		return Key{}, "", &KeyError{"role", "use one of " + names(Roles)}
	case len(n.AgentRoles) > 0 && n.Role != Agent:
		return Key{}, "", &KeyError{"agent_roles", "agent roles require the role agent"}
	case len(n.AgentRoles) > maxAgentRoles, slices.ContainsFunc(n.AgentRoles, func(role string) bool { return !agentRole.MatchString(role) }):
		return Key{}, "", &KeyError{"agent_roles", fmt.Sprintf("use up to %d roles of 1 to 40 lowercase letters, digits, _ and -", maxAgentRoles)}
	case !n.Expires.IsZero() && !n.Expires.After(k.now()):
		return Key{}, "", &KeyError{"expires", "use a time in the future"}
	}
	var id [6]byte
	var secret [32]byte
	_, _ = rand.Read(id[:]) // never fails
	_, _ = rand.Read(secret[:])
	key := Key{ID: hex.EncodeToString(id[:]), Name: n.Name, Role: n.Role, AgentRoles: n.AgentRoles, Created: now}
	expires := ""
	if !n.Expires.IsZero() {
		key.Expires = n.Expires.UTC().Truncate(time.Millisecond)
		expires = strconv.FormatInt(key.Expires.UnixMilli(), 10)
	}
	sum := sha256.Sum256(secret[:])
	create := func() (int, error) {
		return scripts["create"].Run(ctx, k.rdb, []string{k.keys.index(), k.keys.record(key.ID)},
			key.ID, maxKeys, key.Name, string(key.Role), hex.EncodeToString(sum[:]), now.UnixMilli(), expires, strings.Join(n.AgentRoles, " ")).Int()
	}
	done, err := create()
	if err == nil && done == 0 {
		if err = k.forgetOldest(ctx); err == nil {
			done, err = create()
		}
	}
	if err == nil && done == 0 {
		err = ErrTooManyKeys
	}
	if err != nil {
		return Key{}, "", fmt.Errorf("create key %s: %w", n.Name, err)
	}
	k.mu.Lock()
	k.any = true // requests to this process now need a key
	k.mu.Unlock()
	return key, prefix + key.ID + "_" + base64.RawURLEncoding.EncodeToString(secret[:]), nil
}

// forgetOldest removes the oldest revoked or expired key, or returns ErrTooManyKeys.
func (k *Keys) forgetOldest(ctx context.Context) error {
	list, err := k.List(ctx)
	if err != nil {
		return err
	}
	now := k.now()
	i := slices.IndexFunc(list, func(key Key) bool { return slices.Contains([]string{"revoked", "expired"}, key.State(now)) })
	if i < 0 {
		return ErrTooManyKeys
	}
	id := list[i].ID
	return scripts["forget"].Run(ctx, k.rdb, []string{k.keys.index(), k.keys.record(id)}, id, now.UnixMilli()).Err()
}

// List returns all keys, including revoked and expired ones, oldest first. A key with an undecodable record has only an ID.
func (k *Keys) List(ctx context.Context) ([]Key, error) {
	ids, err := k.rdb.ZRange(ctx, k.keys.index(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list the keys: %w", err)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	records := make([]*redis.MapStringStringCmd, len(ids))
	if _, err := k.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			records[i] = p.HGetAll(ctx, k.keys.record(id))
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list the keys: %w", err)
	}
	var list []Key
	for i, id := range ids {
		if s, ok := parseKey(id, records[i].Val()); ok {
			list = append(list, s.Key)
		} else {
			list = append(list, Key{ID: id})
		}
	}
	slices.SortStableFunc(list, func(a, b Key) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// parseKey decodes a record and reports whether it is valid. An undecodable expiry or revocation time invalidates the record, so
// that the key is rejected.
func parseKey(id string, fields map[string]string) (stored, bool) {
	at := func(name string) time.Time {
		ms, err := strconv.ParseInt(fields[name], 10, 64)
		if err != nil {
			return time.Time{}
		}
		return time.UnixMilli(ms).UTC()
	}
	role, err := ParseRole(fields["role"])
	hash, hashErr := hex.DecodeString(fields["hash"])
	if err != nil || hashErr != nil || len(hash) != sha256.Size {
		return stored{}, false
	}
	for _, name := range []string{"expires", "revoked"} {
		if _, set := fields[name]; set && at(name).IsZero() {
			return stored{}, false
		}
	}
	return stored{Key{
		ID: id, Name: fields["name"], Role: role, AgentRoles: strings.Fields(fields["agent_roles"]), Created: at("created"), Expires: at("expires"), Revoked: at("revoked"), Used: at("used"),
	}, hash}, true
}

// Revoke revokes a key by ID, or by name if only one active key has that name. It takes effect in other processes within two
// seconds. It is idempotent. It returns ErrNoKey, or a *KeyError if the name is ambiguous.
func (k *Keys) Revoke(ctx context.Context, idOrName string) (Key, error) {
	key, err := k.find(ctx, idOrName)
	if err != nil {
		return Key{}, err
	}
	now := k.now().UTC().Truncate(time.Millisecond)
	n, err := scripts["revoke"].Run(ctx, k.rdb, []string{k.keys.record(key.ID)}, now.UnixMilli()).Int()
	if err != nil {
		return Key{}, fmt.Errorf("revoke key %s: %w", key.ID, err)
	}
	if n < 0 {
		return Key{}, fmt.Errorf("key %s: %w", key.ID, ErrNoKey)
	}
	if n == 1 {
		key.Revoked = now
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.cache, key.ID)
	k.named = time.Time{}
	return key, nil
}

// find returns the key with an ID, or the only key with a name. Active keys take precedence.
func (k *Keys) find(ctx context.Context, idOrName string) (Key, error) {
	list, err := k.List(ctx)
	if err != nil {
		return Key{}, err
	}
	if i := slices.IndexFunc(list, func(key Key) bool { return key.ID == idOrName }); i >= 0 {
		return list[i], nil
	}
	now := k.now()
	named := slices.DeleteFunc(list, func(key Key) bool { return key.Name != idOrName })
	if active := slices.DeleteFunc(slices.Clone(named), func(key Key) bool { return key.State(now) != "active" }); len(active) > 0 {
		named = active
	}
	switch len(named) {
	case 0:
		return Key{}, fmt.Errorf("key %.100q: %w", idOrName, ErrNoKey)
	case 1:
		return named[0], nil
	}
	ids := make([]string, len(named))
	for i, key := range named {
		ids[i] = key.ID
	}
	return Key{}, &KeyError{"name", fmt.Sprintf("%d keys are named %s; use an ID: %s", len(ids), idOrName, strings.Join(ids, ", "))}
}

// OwnerActive reports whether an owner of agents is the name of an active key, or the subject of a token, which cannot be
// revoked. The result may be two seconds old.
func (k *Keys) OwnerActive(ctx context.Context, owner string) (bool, error) {
	name, isKey := strings.CutPrefix(owner, "key:")
	if !isKey {
		return true, nil
	}
	now := k.now()
	k.mu.Lock()
	names, fresh := k.names, now.Sub(k.named) < cacheFor
	k.mu.Unlock()
	if !fresh {
		list, err := k.List(ctx)
		if err != nil {
			return false, err
		}
		names = map[string]bool{}
		for _, key := range list {
			if key.State(now) == "active" {
				names[key.Name] = true
			}
		}
		k.mu.Lock()
		k.names, k.named = names, now
		k.mu.Unlock()
	}
	return names[name], nil
}

// ErrStale means that Redis is unavailable and no key existed the last time that it was available.
var ErrStale = errors.New("check for keys: Redis is unavailable")

// Any reports whether a key has been created. A key created by another process takes effect within two seconds. While Redis is
// unavailable, Any returns an error unless a key existed before.
func (k *Keys) Any(ctx context.Context) (bool, error) {
	now := k.now()
	k.mu.Lock()
	some, known := k.any, k.known
	k.mu.Unlock()
	if some || !known.IsZero() && now.Sub(known) < cacheFor {
		return some, nil
	}
	n, err := k.rdb.Exists(ctx, k.keys.index()).Result()
	if err != nil {
		if !known.IsZero() {
			return false, fmt.Errorf("%w: %w", ErrStale, err)
		}
		return false, fmt.Errorf("check for keys: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known, k.any = now, k.any || n > 0
	return k.any, nil
}

// verify returns the key with a string form, or a *Denied.
func (k *Keys) verify(ctx context.Context, text string) (Key, error) {
	id, secret, err := splitKey(text)
	if err != nil {
		return Key{}, &Denied{"invalid key"}
	}
	key, found, err := k.read(ctx, id)
	if err != nil {
		return Key{}, err
	}
	sum := sha256.Sum256(secret)
	if !found || subtle.ConstantTimeCompare(sum[:], key.hash) != 1 {
		return Key{}, &Denied{"invalid key"}
	}
	now := k.now()
	if state := key.State(now); state != "active" {
		return Key{}, &Denied{"the key is " + state}
	}
	if now.Sub(key.Used) >= usedEvery {
		k.noteUse(ctx, key, now)
	}
	return key.Key, nil
}

// splitKey returns the ID and the secret of the string form of a key.
func splitKey(text string) (id string, secret []byte, err error) {
	id, rest, _ := strings.Cut(strings.TrimPrefix(text, prefix), "_")
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != 6 {
		return "", nil, errors.New("not a key")
	}
	secret, err = base64.RawURLEncoding.Strict().DecodeString(rest)
	if err == nil && len(secret) != 32 {
		err = errors.New("not a key")
	}
	return strings.ToLower(id), secret, err
}

// read returns a key. It uses the cache for a short time.
func (k *Keys) read(ctx context.Context, id string) (stored, bool, error) {
	now := k.now()
	k.mu.Lock()
	c, ok := k.cache[id]
	k.mu.Unlock()
	age := now.Sub(c.at)
	if ok && age < cacheFor {
		return c.stored, true, nil
	}
	fields, err := k.rdb.HGetAll(ctx, k.keys.record(id)).Result()
	if err != nil {
		if ok && age < staleFor {
			return c.stored, true, nil
		}
		return stored{}, false, fmt.Errorf("read a key: %w", err)
	}
	key, found := parseKey(id, fields)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !found {
		delete(k.cache, id)
		return stored{}, false, nil
	}
	if len(k.cache) >= 2*maxKeys { // includes removed keys
		clear(k.cache)
	}
	k.cache[id] = cached{key, now}
	return key, true, nil
}

// noteUse records the use of a key. Errors are ignored, because the request is valid.
func (k *Keys) noteUse(ctx context.Context, key stored, now time.Time) {
	k.mu.Lock()
	if c, ok := k.cache[key.ID]; ok {
		c.Used = now
		k.cache[key.ID] = c
	}
	k.mu.Unlock()
	_ = scripts["used"].Run(ctx, k.rdb, []string{k.keys.record(key.ID)}, now.UnixMilli(), usedEvery.Milliseconds()).Err()
}

//go:embed lua/*.lua
var sources embed.FS

// scripts contains the Lua scripts by name.
var scripts = luascript.Read(sources)
