// An agent of the role validator, like validator.py, for Node 18 or later without packages. See README.md.
const { hostname } = require('node:os')
const name = process.env.AGENT_NAME || `validator-${hostname()}-${process.pid}`
const headers = { 'Content-Type': 'application/json' }
if (process.env.MUSTER_KEY) headers.Authorization = `Bearer ${process.env.MUSTER_KEY}`

// call returns the response of the API. It retries while the API is unreachable or busy; calls are idempotent.
async function call(path, body, method = 'POST', tries = Infinity) {
  for (let n = 0; n < tries; n++) {
    const request = { method, headers, body: JSON.stringify(body), signal: AbortSignal.timeout(60_000) }
    const response = await fetch(new URL(path, process.env.MUSTER_API || 'http://127.0.0.1:8000'), request).catch(() => undefined)
    const text = await response?.text().catch(() => undefined)
    if (response?.ok && text !== undefined) return text && JSON.parse(text)
    if (response && response.status < 500 && response.status !== 429) throw Object.assign(new Error(text), { status: response.status })
    await new Promise((resolve) => setTimeout(resolve, (0.5 + Math.random() / 2) * Math.min(2 ** n / 4, 10) * 1000))
  }
}

const labels = { gobd: /\b(gobd|invoice|accounting|bookkeeping|retention|audit|tax)/i, gdpr: /\b(gdpr|personal|privacy|consent|data subject|erase)/i }
function judge({ item, idempotency_key }) {
  if (!/\b(must|shall|should|may not|required?)\b/i.test(item.text)) {
    return { verdict: 'reject', reason: 'no requirement: none of must, shall, should, may not, require' }
  }
  const found = Object.entries(labels).map(([label, words]) => [label, words.test(item.text)])
  return { verdict: 'accept', item: { external_id: `req-${idempotency_key}`, labels: Object.fromEntries(found) } }
}

async function serve(me, a) {
  const [path, holder] = [`/v1/assignments/${a.id}`, { agent: me.id, fence: a.fence }]
  let ended = false // by a heartbeat that failed: the assignment was reassigned. Check this repeatedly in longer work.
  const beat = setInterval(() => call(`${path}/heartbeat`, holder).catch(() => { ended = true }), me.lease_seconds * 333)
  try {
    const result = judge(a)
    if (ended) return
    await call(`${path}/complete`, { ...holder, ...result, usage: { requests: 1, tokens: a.item.text.split(/\s+/).length } })
    console.log(JSON.stringify({ job: a.job.id, key: a.item.key, agent: me.id, ...result }))
  } catch (error) { // 404 and 409: the assignment was reassigned, or the job has ended
    if (![404, 409].includes(error.status)) await call(`${path}/fail`, { ...holder, error: error.message })
  } finally {
    clearInterval(beat)
  }
}

async function main(me, stopping) {
  process.once('SIGINT', () => process.emit('SIGTERM')).once('SIGTERM', async () => {
    stopping = true
    if (me) await call(`/v1/agents/${me.id}`, undefined, 'DELETE', 1).catch(() => {}) // other agents get its work
    process.exit()
  })
  while (!stopping) {
    try {
      me ??= await call('/v1/agents', { name, roles: ['validator'] })
      for (const a of (await call(`/v1/agents/${me.id}/lease`, { wait_seconds: 25 })).assignments) await serve(me, a)
    } catch (error) {
      if (![404, 409].includes(error.status)) throw error
      me = undefined // the agent is unknown; register again
    }
  }
}
main()
