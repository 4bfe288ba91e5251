// An agent of the role validator, as validator.py, in Node 18 or later without packages. See README.md.
const { hostname } = require('node:os')
const name = process.env.AGENT_NAME || `validator-${hostname()}-${process.pid}`
const headers = { 'Content-Type': 'application/json' }
if (process.env.MUSTER_KEY) headers.Authorization = `Bearer ${process.env.MUSTER_KEY}`

// call returns the answer of the API. It is repeated while the API is away or busy; that changes nothing.
async function call(path, body, method = 'POST', tries = Infinity) {
  for (let n = 0; n < tries; n++) {
    const request = { method, headers, body: JSON.stringify(body), signal: AbortSignal.timeout(60_000) }
    const answer = await fetch(new URL(path, process.env.MUSTER_API || 'http://127.0.0.1:8000'), request).catch(() => undefined)
    const text = await answer?.text().catch(() => undefined)
    if (answer?.ok && text !== undefined) return text && JSON.parse(text)
    if (answer && answer.status < 500 && answer.status !== 429) throw Object.assign(new Error(text), { status: answer.status })
    await new Promise((resolve) => setTimeout(resolve, (0.5 + Math.random() / 2) * Math.min(2 ** n / 4, 10) * 1000))
  }
}

const labels = { gobd: /\b(gobd|invoice|accounting|bookkeeping|retention|audit|tax)/i, gdpr: /\b(gdpr|personal|privacy|consent|data subject|erase)/i }
function judge({ item, idempotency_key }) {
  if (!/\b(must|shall|should|may not|required?)\b/i.test(item.text)) {
    return { verdict: 'reject', reason: 'it requires nothing: no must, shall, should, may not or require' }
  }
  const found = Object.entries(labels).map(([label, words]) => [label, words.test(item.text)])
  return { verdict: 'accept', item: { external_id: `req-${idempotency_key}`, labels: Object.fromEntries(found) } }
}

async function serve(me, a) {
  const [path, holder] = [`/v1/assignments/${a.id}`, { agent: me.id, fence: a.fence }]
  let ended = false // 409 to a heartbeat: the assignment is no longer ours. A longer work looks at this again and again.
  const beat = setInterval(() => call(`${path}/heartbeat`, holder).catch(() => { ended = true }), me.lease_seconds * 333)
  try {
    const answer = judge(a)
    if (ended) return
    await call(`${path}/complete`, { ...holder, ...answer, usage: { requests: 1, tokens: a.item.text.split(/\s+/).length } })
    console.log(JSON.stringify({ job: a.job.id, key: a.item.key, agent: me.id, ...answer }))
  } catch (error) { // 404 and 409: another agent has it, or the job has ended
    if (![404, 409].includes(error.status)) await call(`${path}/fail`, { ...holder, error: error.message })
  } finally {
    clearInterval(beat)
  }
}

async function main(me, stopping) {
  process.once('SIGINT', () => process.emit('SIGTERM')).once('SIGTERM', async () => {
    stopping = true
    if (me) await call(`/v1/agents/${me.id}`, undefined, 'DELETE', 1).catch(() => {}) // others get what it works on
    process.exit()
  })
  while (!stopping) {
    try {
      me ??= await call('/v1/agents', { name, roles: ['validator'] })
      for (const a of (await call(`/v1/agents/${me.id}/lease`, { wait_seconds: 25 })).assignments) await serve(me, a)
    } catch (error) {
      if (![404, 409].includes(error.status)) throw error
      me = undefined // it was forgotten, and registers again
    }
  }
}
main()
