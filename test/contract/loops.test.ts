/** Agents that run in a circle: told, or stopped, by the policy of the key or of its workspace. */
import t, { type Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import type { LoopNote } from '../../src/pipeline/loops.ts'
import { startGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { caller } from '../support/management.ts'
import { readPiece } from '../support/resumable.ts'

const PRICE = 0.01
const MODEL = 'sim/priced'
const PRICED = {
  id: MODEL,
  endpoints: [{ provider: 'sim', upstreamModel: 'echo', pricing: { request: String(PRICE) } }],
}
const USER = { role: 'user', content: 'Mend it' }

/** A conversation in which the same call came so many times, as each API writes it. */
const HISTORIES: Readonly<Record<string, (times: number) => object>> = {
  '/responses': times => ({
    model: MODEL,
    input: [
      USER,
      ...Array.from({ length: times }, (_, at) => [
        { type: 'function_call', call_id: `c${at}`, name: 'run_tests', arguments: '{"all":true}' },
        { type: 'function_call_output', call_id: `c${at}`, output: '2 failed' },
      ]).flat(),
    ],
  }),
  '/chat/completions': times => ({
    model: MODEL,
    messages: [
      USER,
      ...Array.from({ length: times }, (_, at) => [
        {
          role: 'assistant',
          tool_calls: [
            { id: `c${at}`, type: 'function', function: { name: 'run_tests', arguments: '{"all":true}' } },
          ],
        },
        { role: 'tool', tool_call_id: `c${at}`, content: '2 failed' },
      ]).flat(),
    ],
  }),
  '/messages': times => ({
    model: MODEL,
    max_tokens: 100,
    messages: [
      USER,
      ...Array.from({ length: times }, (_, at) => [
        {
          role: 'assistant',
          content: [{ type: 'tool_use', id: `c${at}`, name: 'run_tests', input: { all: true } }],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: `c${at}`, content: '2 failed' }] },
      ]).flat(),
    ],
  }),
}

async function start(t: Test, options: TestGatewayOptions = {}) {
  const notes: LoopNote[] = []
  const gateway = await startGateway({ models: [PRICED], onLoop: note => notes.push(note), ...options })
  t.teardown(() => gateway.close())
  const manage = caller(gateway.url, gateway.managementKey)
  return {
    ...gateway,
    notes,
    manage,
    async newKey(fields: object) {
      const created = await manage('POST', '/keys', { name: 'agent', ...fields })
      if (created.status !== 201) throw new Error(created.text)
      return String(created.document['key'])
    },
    ask: (apiKey: string, path: string, body: object) =>
      readPiece(path, { port: gateway.port, apiKey, body }),
  }
}

t.test('a repeated call is told in a header, or refused, on every API', async t => {
  const s = await start(t)
  const [told, stopped] = [await s.newKey({ loops: 'tell' }), await s.newKey({ loops: 'stop' })]
  const free = await s.newKey({})
  for (const [path, historyOf] of Object.entries(HISTORIES)) {
    for (const stream of [false, true]) {
      const body = { ...historyOf(5), stream }
      const seen = await s.ask(told, path, body)
      t.equal(seen.status, 200, `${path} ${seen.body}`)
      t.equal(seen.headers['x-gateway-loop'], 'run_tests*5', path)
      const before = s.sim.state.requests
      const refused = await s.ask(stopped, path, body)
      t.equal(refused.status, 429, path)
      t.match(refused.body, 'loop_detected')
      t.match(refused.body, /runs in a circle: run_tests was called 5 times with the same arguments/)
      t.equal(refused.headers['x-should-retry'], 'false')
      t.equal(refused.headers['retry-after'], undefined)
      t.equal(s.sim.state.requests, before, 'no provider was asked')
      const other = await s.ask(free, path, body)
      t.equal(other.status, 200)
      t.equal(other.headers['x-gateway-loop'], undefined, 'nobody looks without a policy')
      const shorter = await s.ask(stopped, path, { ...historyOf(4), stream })
      t.equal(shorter.status, 200)
      t.equal(shorter.headers['x-gateway-loop'], undefined)
    }
  }
  const gemini = {
    contents: [
      { role: 'user', parts: [{ text: 'Mend it' }] },
      ...Array.from({ length: 5 }, () => [
        { role: 'model', parts: [{ functionCall: { name: 'run_tests', args: { all: true } } }] },
        {
          role: 'user',
          parts: [{ functionResponse: { name: 'run_tests', response: { result: '2 failed' } } }],
        },
      ]).flat(),
    ],
  }
  const reply = await fetch(`http://127.0.0.1:${s.port}/v1beta/models/${MODEL}:generateContent`, {
    method: 'POST',
    headers: { 'x-goog-api-key': stopped, 'content-type': 'application/json' },
    body: JSON.stringify(gemini),
  })
  t.equal(reply.status, 429)
  t.match(await reply.text(), 'loop_detected')
  t.same(
    s.notes.slice(0, 2).map(({ kind, times, action }) => ({ kind, times, action })),
    [
      { kind: 'repeat', times: 5, action: 'tell' },
      { kind: 'repeat', times: 5, action: 'stop' },
    ],
  )
  t.notMatch(JSON.stringify(s.notes), /run_tests|failed|sk-gw/)
  const { values } = await s.serving.metrics.loops.get()
  t.equal(values.find(({ labels }) => labels['kind'] === 'repeat' && labels['action'] === 'stop')?.value, 7)
})

t.test('the key has its own policy, or that of its workspace', async t => {
  const s = await start(t)
  const [own, inherited, off] = [
    await s.newKey({ loops: { action: 'stop', repeats: 3 } }),
    await s.newKey({}),
    await s.newKey({ loops: 'off' }),
  ]
  const ask = async (key: string, times: number) => {
    const history = HISTORIES['/responses']?.(times)
    const { status, headers } = await s.ask(key, '/responses', history ?? {})
    return [status, headers['x-gateway-loop']]
  }
  t.same(await ask(own, 3), [429, undefined])
  t.same(await ask(inherited, 5), [200, undefined])
  const changed = await s.manage('PATCH', '/workspaces/default', { loops: { action: 'tell', repeats: 4 } })
  t.equal(changed.status, 200, changed.text)
  t.same(changed.data['loops'], { action: 'tell', repeats: 4, cycles: 4, usd: null })
  t.same(await ask(inherited, 4), [200, 'run_tests*4'])
  t.same(await ask(own, 4), [429, undefined])
  t.same(await ask(off, 9), [200, undefined])
  t.equal((await s.manage('PATCH', `/keys/${hashKey(own)}`, { loops: null })).status, 200)
  t.same(await ask(own, 4), [200, 'run_tests*4'])
  for (const loops of ['often', { action: 'stop', repeats: 1 }, { repeats: 5 }, { action: 'tell', usd: 0 }]) {
    const { status, message } = await s.manage('POST', '/keys', { name: 'bad', loops })
    t.equal(status, 400, JSON.stringify(loops))
    t.match(message, /^loops/)
  }
})

t.test('what a client measures anew for each result hides no circle', async t => {
  const s = await start(t)
  const key = await s.newKey({ loops: { action: 'stop', repeats: 3 } })
  const ask = async (outputOf: (at: number) => unknown) => {
    const calls = [0, 1, 2].flatMap(at => [
      { type: 'function_call', call_id: `c${at}`, name: 'exec_command', arguments: '{"cmd":"npm test"}' },
      { type: 'function_call_output', call_id: `c${at}`, output: outputOf(at) },
    ])
    return (await s.ask(key, '/responses', { model: MODEL, input: [USER, ...calls] })).status
  }
  const command = (at: number): string =>
    `Chunk ID: b139d${at}\nWall time: 0.000${at} seconds\nProcess exited with code 1\nOutput:\n2 failed`
  t.equal(await ask(command), 429)
  const parts = (at: number): unknown => [
    { type: 'input_text', text: `Wall time: 0.00${at} seconds\nOutput:` },
    { type: 'input_text', text: '2 failed' },
  ]
  t.equal(await ask(parts), 429)
  t.equal(await ask(at => `Output:\n${at} failed`), 200, 'another result')
  t.equal(await ask(at => `The tests took ${at} seconds`), 200, 'its own words are a result')
})

t.test('a session that spends without a word of its user is a loop', async t => {
  const s = await start(t)
  const key = await s.newKey({ loops: { action: 'stop', usd: 3 * PRICE } })
  const said = (text: string, more: readonly object[] = []) =>
    s.ask(key, '/responses', {
      model: MODEL,
      session_id: 'session',
      input: [{ role: 'user', content: text }, ...more],
    })
  const call = (at: number) => [
    { type: 'function_call', call_id: `c${at}`, name: 'look', arguments: `{"at":${at}}` },
    { type: 'function_call_output', call_id: `c${at}`, output: `${at}` },
  ]
  const done: object[] = []
  for (const at of [0, 1, 2]) {
    t.equal((await said('Go', done)).status, 200)
    done.push(...call(at))
  }
  const refused = await said('Go', done)
  t.equal(refused.status, 429)
  t.match(refused.body, /the session has spent 0\.03 USD without a new user message/)
  const other = await s.ask(key, '/responses', { model: MODEL, session_id: 'another', input: 'Go' })
  t.equal(other.status, 200)
  const more = await s.ask(key, '/responses', {
    model: MODEL,
    session_id: 'session',
    input: [{ role: 'user', content: 'Go' }, ...done, { role: 'user', content: 'Go on' }],
  })
  t.equal(more.status, 200, 'its user spoke')
  t.match(s.notes, [{ kind: 'spend', times: 3, action: 'stop' }])
})
