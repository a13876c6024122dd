/** The console over real HTTP, with a real gateway process: who may see what, and what nobody sees. */
import { connect } from 'node:net'
import t from 'tap'
import { hashKey } from '../../../src/callers/api-key.ts'
import {
  type ConsoleWorld,
  LiveReader,
  type LiveRow,
  PROVIDER_SECRET,
  startConsoleWorld,
} from '../../support/console-world.ts'
import { addKey, addOrganization, caller } from '../../support/management.ts'
import { until } from '../../support/patience.ts'
import { RawClient } from '../../support/raw-http.ts'
import { eventually } from '../../support/stream-probe.ts'

const VIEWS = ['summary', 'keys', 'end-users', 'credits', 'guardrails', 'batches', 'models', 'process']
const PROMPT = 'prompt-canary-0815'
/** For a batch of two lines, on a busy machine. */
const BATCH_MS = 120_000

t.test('the console', async t => {
  const world = await startConsoleWorld(t)
  const { gateway, admin, respond } = world
  const other = await addOrganization(world.storageUrl, 'org_other')
  const statusOf = async (path: string, init?: RequestInit, key?: string | null) => {
    const reply = await admin(path, init, key)
    await reply.arrayBuffer()
    return reply.status
  }
  const open = async (t: { teardown(close: () => void): void }, key?: string) => {
    const live = await LiveReader.open(world, key)
    t.teardown(() => live.close())
    await until('the first event', () => live.events.length > 0)
    return live
  }
  const find = async (live: LiveReader, what: string, fits: (row: LiveRow) => boolean): Promise<LiveRow> => {
    let found: LiveRow | undefined
    await until(what, () => {
      found = [...live.rows.values()].find(fits)
      return found !== undefined
    })
    return found as LiveRow
  }

  await t.test('the page and its files need no key, and allow nothing but themselves', async t => {
    for (const path of ['/console', '/console/']) {
      const reply = await admin(path, {}, null)
      t.equal(reply.status, 200)
      t.equal(reply.headers.get('content-type'), 'text/html; charset=utf-8')
      t.equal(reply.headers.get('x-content-type-options'), 'nosniff')
      const policy = reply.headers.get('content-security-policy')?.split('; ') ?? []
      for (const part of [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
      ])
        t.ok(policy.includes(part), part)
      t.notMatch(policy.join(), 'unsafe')
      const page = await reply.text()
      t.match(page, /<html lang="en">/)
      t.match(page, 'name="viewport"')
      t.match(page, /<title>.+<\/title>/)
      t.notMatch(page, /style=|<style|<script>|https?:/)
    }
    const asked = new Set<string>()
    const follow = async (name: string): Promise<void> => {
      if (asked.has(name)) return
      asked.add(name)
      const reply = await admin(`/console/assets/${name}`, {}, null)
      t.equal(reply.status, 200, name)
      const etag = reply.headers.get('etag') ?? ''
      t.equal(await statusOf(`/console/assets/${name}`, { headers: { 'if-none-match': etag } }, null), 304)
      const text = await reply.text()
      if (!name.endsWith('.js')) return
      for (const [, from = ''] of text.matchAll(/\bfrom\s*["']([\w@./-]+)["']/g)) {
        t.match(from, /^\.{1,2}\//, `${name} imports ${from}`)
        await follow(new URL(from, `file:///${name}`).pathname.slice(1))
      }
    }
    await follow('main.js')
    await follow('style.css')
    await follow('views.css')
    await follow('uplot.css')
    t.ok(asked.size > 40)
    t.match(await (await admin('/', {}, null)).text(), 'href="/console"')
  })

  await t.test('no path leads to other files', async t => {
    for (const name of [
      'console.ts',
      '../console.ts',
      '%2e%2e/console.ts',
      '..%2fconsole.ts',
      'page/main.js',
      'constructor',
      '__proto__',
      'preact',
    ]) {
      const client = new RawClient(Number(new URL(gateway.adminUrl).port))
      await client.send(`GET /console/assets/${name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)
      await client.untilClosed()
      t.match(client.text, /^HTTP\/1\.1 404 /, name)
    }
    t.equal(await statusOf('/console', { method: 'POST', body: 'x' }), 405)
  })

  await t.test('data needs a management key', async t => {
    for (const view of [...VIEWS, 'requests?id=x', 'live', 'nothing']) {
      const path = `/console/data/${view}`
      t.equal(await statusOf(path, {}, null), 401, path)
      t.equal(await statusOf(path, {}, 'sk-gw-mgmt-0'), 401, path)
      t.equal(await statusOf(path, {}, `sk-gw-mgmt-${'0123456789abcdef'.repeat(4)}`), 401, path)
      t.equal(await statusOf(path, {}, gateway.apiKey), 403, path)
    }
    t.equal(await statusOf('/console/data/try', { method: 'POST', body: '{}' }, null), 401)
    for (const view of VIEWS) {
      const reply = await admin(`/console/data/${view}`)
      t.equal(reply.status, 200, view)
      t.equal(reply.headers.get('cache-control'), 'no-store')
      await reply.json()
    }
    t.equal(await statusOf('/console/data/nothing'), 404)
    t.equal(await statusOf('/console/data/keys', { method: 'POST', body: 'x' }), 405)
    t.equal(await statusOf('/console/data/keys?limit=x'), 400)
  })

  await t.test('requests of other sites and by other names are refused', async t => {
    for (const headers of [
      { origin: 'http://elsewhere.example' },
      { origin: 'null' },
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
    ]) {
      t.equal(await statusOf('/console/data/keys', { headers }), 403, JSON.stringify(headers))
      t.equal(await statusOf('/console/data/try', { method: 'POST', headers, body: '{}' }), 403)
    }
    t.equal(await statusOf('/console/data/keys', { headers: { origin: gateway.adminUrl } }), 200)
    const client = new RawClient(Number(new URL(gateway.adminUrl).port))
    await client.send('GET /console HTTP/1.1\r\nHost: rebind.example\r\nConnection: close\r\n\r\n')
    await client.untilClosed()
    t.match(client.text, /^HTTP\/1\.1 421 /)
  })

  await t.test('requests are listed as they end, with stages, cost and the attempts before', async t => {
    await respond({ model: 'sim/echo', input: 'before anybody watched' })
    const live = await open(t)
    await respond({ model: 'sim/echo', input: PROMPT, stream: true })
    const whole = await find(live, 'the request', row => row.stages !== null && row.cost !== null)
    t.equal(whole.model, 'sim/echo')
    t.equal(whole.status, 200)
    t.equal(whole.outcome, 'completed')
    t.ok(whole.cost !== null && whole.cost > 0)
    t.ok(whole.firstTokenMs !== null && whole.firstTokenMs <= whole.durationMs)
    const stages = whole.stages ?? {}
    for (const stage of ['parse', 'auth', 'route', 'upstream_first_byte', 'stream'])
      t.ok((stages[stage] ?? -1) >= 0, stage)
    const sum = Object.values(stages).reduce((total, ms) => total + ms, 0)
    t.ok(Math.abs(sum - whole.durationMs) < 1, `${sum} of ${whole.durationMs} ms`)

    await respond({ model: 'test/falls-back', input: PROMPT })
    const back = await find(
      live,
      'the fallback',
      row => row.model === 'test/falls-back' && row.stages !== null && row.cost !== null,
    )
    t.same(
      back.attempts.map(({ provider, cause }) => ({ provider, cause })),
      [
        { provider: 'down', cause: 'ECONNREFUSED' },
        { provider: 'sim', cause: null },
      ],
    )
    t.equal((await respond({ model: 'test/down', input: PROMPT })).status, 502)
    const down = await find(live, 'the failure', row => row.model === 'test/down' && row.stages !== null)
    t.equal(down.status, 502)
    t.equal(down.outcome, 'failed')
    t.equal(down.cause, 'ECONNREFUSED')
    t.equal((await respond({ model: 'sim/absent', input: PROMPT })).status, 400)
    const refused = await find(live, 'the refusal', row => row.error === 'model_not_found')
    t.equal(refused.outcome, 'refused')

    const detail = await admin(`/console/data/requests?id=${whole.id}`)
    const { data } = (await detail.json()) as { data: Record<string, unknown> }
    t.equal(data['id'], whole.id)
    t.equal(data['accounting'], 'exact')
    t.equal(await statusOf('/console/data/requests?id=gen-unknown'), 404)

    const later = await open(t)
    t.ok(later.rows.size >= 5, 'a later viewer sees them too')
    t.ok(later.rows.has(whole.id))
    t.ok(later.text.includes('"requests":'), 'and the figures of the charts')
  })

  await t.test('an organization sees nothing of another one', async t => {
    const mine = await open(t)
    const theirs = await open(t, other.managementKey)
    await respond({ model: 'sim/echo', input: 'mine' })
    const { text } = await respond({ model: 'sim/call', input: 'theirs' }, other.apiKey)
    const { id } = JSON.parse(text) as { id: string }
    const row = await find(theirs, 'their request', each => each.id === id && each.cost !== null)
    t.same([...theirs.rows.keys()], [row.id], 'theirs is all they see')
    const known = await respond({ model: 'sim/echo', input: 'mine again' })
    const mineId = (JSON.parse(known.text) as { id: string }).id
    await find(mine, 'my request', each => each.id === mineId && each.cost !== null)
    t.notOk(mine.rows.has(id))
    t.equal(await statusOf(`/console/data/requests?id=${id}`), 404)
    t.equal(await statusOf(`/console/data/requests?id=${id}`, {}, other.managementKey), 200)
    for (const view of ['keys', 'credits', 'guardrails', 'batches', 'end-users']) {
      const theirView = await (await admin(`/console/data/${view}`, {}, other.managementKey)).text()
      t.notMatch(theirView, 'GATEWAY_', view)
      t.notMatch(theirView, 'ws_default', view)
      const myView = await (await admin(`/console/data/${view}`)).text()
      t.notMatch(myView, 'org_other', view)
      t.notMatch(myView, other.workspaceId, view)
    }
  })

  await t.test(
    'batches of all workspaces are listed with their progress, and nothing of their lines',
    async t => {
      const asked = await fetch(`${gateway.url}/v1/batches`, {
        method: 'POST',
        headers: { authorization: `Bearer ${other.apiKey}`, 'content-type': 'application/json' },
        body: JSON.stringify({
          endpoint: '/v1/responses',
          model: 'sim/echo',
          requests: [
            { custom_id: 'one', body: { input: PROMPT } },
            { custom_id: 'two', body: { input: PROMPT } },
          ],
        }),
      })
      t.equal(asked.status, 202)
      const { id } = (await asked.json()) as { id: string }
      let seen = ''
      const isDone = async () => {
        seen = await (await admin('/console/data/batches', {}, other.managementKey)).text()
        return seen.includes('"status":"completed"')
      }
      t.ok(await eventually(isDone, BATCH_MS))
      t.match(seen, id)
      t.match(seen, '"request_counts":{"total":2,"completed":2,"failed":0}')
      t.match(seen, other.workspaceId)
      t.notMatch(seen, PROMPT)
      t.notMatch(await (await admin('/console/data/batches')).text(), id)
    },
  )

  await t.test('neither prompts nor keys are in anything that it sends', async t => {
    const live = await open(t)
    await respond({ model: 'sim/echo', input: PROMPT, user: 'end-user-1' })
    await respond({ model: 'test/down', input: PROMPT })
    await find(live, 'the failure', row => row.model === 'test/down' && row.stages !== null)
    await world.manage('POST', '/end-users', { user: 'end-user-1' })
    let told = live.text
    for (const view of VIEWS) told += await (await admin(`/console/data/${view}`)).text()
    t.ok(told.includes('end-user-1'))
    for (const secret of [
      PROMPT,
      PROVIDER_SECRET,
      gateway.apiKey,
      world.managementKey,
      other.apiKey,
      other.managementKey,
    ])
      t.notOk(told.includes(secret))
    t.notMatch(told, /sk-gw-(?:v1|mgmt)-[0-9a-f]{4}/)
  })

  await t.test('a viewer is let go when its key is no longer valid', async t => {
    const live = await open(t, other.managementKey)
    const second = await addKey(world.storageUrl, { kind: 'management', organizationId: 'org_other' })
    const { status } = await caller(`${gateway.url}/v1`, second)(
      'PATCH',
      `/keys/${hashKey(other.managementKey)}`,
      { disabled: true },
    )
    t.equal(status, 200)
    await until('the end', () => live.isOver)
    t.same(live.events.at(-1), 'refused')
    t.equal(await statusOf('/console/data/keys', {}, other.managementKey), 401)
  })

  await t.test('no more than sixteen watch, and probes still find room', async t => {
    const viewers = await Promise.all(Array.from({ length: 16 }, () => open(t)))
    t.equal(await statusOf('/console/data/live'), 429)
    t.equal(await statusOf('/readyz', {}, null), 200)
    for (const viewer of viewers) viewer.close()
    await until('room again', async () => {
      const leaving = new AbortController()
      const { status } = await admin('/console/data/live', { signal: leaving.signal })
      leaving.abort()
      return status === 200
    })
  })

  await t.test('a trial is passed to the public port with its own key, and streamed back', async t => {
    const trial = (body: string, apiKey: string | null = gateway.apiKey, signal?: AbortSignal) =>
      admin('/console/data/try', {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...(apiKey === null ? {} : { 'x-api-key': apiKey }) },
        body,
        ...(signal === undefined ? {} : { signal }),
      })
    const reply = await trial(JSON.stringify({ model: 'sim/echo', input: 'tried', stream: true }))
    t.equal(reply.status, 200)
    t.match(reply.headers.get('content-type'), /^text\/event-stream/)
    t.match(reply.headers.get('x-generation-id'), /^gen-/)
    const text = await reply.text()
    t.match(text, 'event: response.output_text.delta')
    t.match(text, 'event: response.completed')
    t.equal((await trial('{}', null)).status, 400, 'without a key')
    t.equal((await trial('{}', 'sk-gw-v1-wrong')).status, 401, 'with a wrong one')
    t.equal((await trial('{}', world.managementKey)).status, 403, 'with a management key')
    t.equal((await trial('{')).status, 400, 'without JSON')
    t.equal((await trial('x'.repeat(65 * 1024))).status, 413, 'too large')

    const live = await open(t)
    const stop = new AbortController()
    const long = await trial(
      JSON.stringify({ model: 'sim/write-200-20', input: 'on and on', stream: true }),
      gateway.apiKey,
      stop.signal,
    )
    const reader = long.body?.getReader()
    await reader?.read()
    const runs = [long]
    for (let at = 1; at < 8; at++)
      runs.push(
        await trial(
          JSON.stringify({ model: 'sim/write-200-20', input: 'x', stream: true }),
          gateway.apiKey,
          stop.signal,
        ),
      )
    t.equal((await trial('{}')).status, 429, 'eight at a time')
    stop.abort()
    await find(
      live,
      'the end of the request',
      row => row.model === 'sim/write-200-20' && row.outcome === 'aborted',
    )
    await until('room again', async () => (await trial('{}')).status === 400)
  })

  await t.test('bodies that never end and heads that are odd do not stop it', async t => {
    const port = Number(new URL(gateway.adminUrl).port)
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => undefined)
    t.teardown(() => socket.destroy())
    const head = [
      'POST /console/data/try HTTP/1.1',
      'Host: a',
      `Authorization: Bearer ${world.managementKey}`,
      `X-Api-Key: ${gateway.apiKey}`,
      'Transfer-Encoding: chunked',
    ]
    socket.write(`${head.join('\r\n')}\r\n\r\n`)
    let told = ''
    socket.on('data', (chunk: Buffer) => {
      told += chunk.toString()
    })
    const chunk = `4000\r\n${'x'.repeat(0x4000)}\r\n`
    for (let at = 0; at < 5; at++) socket.write(chunk)
    await until('a refusal', () => told.startsWith('HTTP/1.1 413 '))
    for (const path of [
      '/console/data/keys?limit=%',
      '/console/data/models?filter=%E0%A4%A',
      '/console/data//',
      '/console//',
    ]) {
      const client = new RawClient(port)
      await client.send(
        `GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${world.managementKey}\r\nConnection: close\r\n\r\n`,
      )
      await client.untilClosed()
      t.match(client.text, /^HTTP\/1\.1 (?:200|400|404) /, path)
    }
  })
})

t.test('without the console nothing of it is there', async t => {
  const world: ConsoleWorld = await startConsoleWorld(t, { console: { enabled: false } })
  for (const path of ['/console', '/console/assets/main.js', '/console/data/keys'])
    t.equal((await world.admin(path)).status, 404, path)
  t.notMatch(await (await world.admin('/')).text(), '/console')
})
