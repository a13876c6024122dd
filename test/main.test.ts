/** The product as it is started: the real process, its output, signals and exit codes. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parseEventStream } from './support/gateway.ts'

const ENTRY = join(import.meta.dirname, '../src/main.ts')
const CLI = join(import.meta.dirname, '../src/cli.ts')
const FLAGS = ['--disable-warning=ExperimentalWarning']

interface Running {
  readonly process: ChildProcessWithoutNullStreams
  readonly url: string
  readonly adminUrl: string
  stdout(): string
  stderr(): string
}

function run(
  folder: string,
  entry: string,
  words: readonly string[],
  environment: Record<string, string> = {},
) {
  const child = spawn(process.execPath, [...FLAGS, entry, ...words], {
    cwd: folder,
    env: { PATH: process.env['PATH'] ?? '', GATEWAY_PORT: '0', GATEWAY_ADMIN_PORT: '0', ...environment },
  })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  return { child, stdout: () => stdout, stderr: () => stderr }
}

/** Starts a gateway and waits for its `listening` line; it is stopped with the test. */
async function start(t: Test, folder: string, environment: Record<string, string> = {}): Promise<Running> {
  const { child, stdout, stderr } = run(folder, ENTRY, [], environment)
  t.teardown(() => child.kill('SIGKILL'))
  for (;;) {
    const line = stdout()
      .split('\n')
      .find(candidate => candidate.includes('"msg":"listening"'))
    if (line !== undefined) {
      const { url, adminUrl } = JSON.parse(line) as { url: string; adminUrl: string }
      return { process: child, url, adminUrl, stdout, stderr }
    }
    const [event] = await Promise.race([
      once(child.stdout, 'data').then(() => ['data']),
      once(child, 'exit').then(() => ['exit']),
    ])
    if (event === 'exit') throw new Error(`did not start: ${stderr()}`)
  }
}

async function finished(
  folder: string,
  entry: string,
  words: readonly string[],
  environment?: Record<string, string>,
) {
  const { child, stdout, stderr } = run(folder, entry, words, environment)
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, stdout: stdout(), stderr: stderr() }
}

const newFolder = () => mkdtempSync(join(tmpdir(), 'sluice-main-'))
const ask = (url: string, key: string, body: unknown) =>
  fetch(`${url}/v1/responses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })

t.test('a fresh folder: keys and a curl line are shown once, and the request in it streams', async t => {
  const folder = newFolder()
  const first = await start(t, folder)
  if (!first.stdout().includes('curl -N')) await once(first.process.stdout, 'data')
  const [, key = ''] = /(sk-gw-v1-[0-9a-f]{64})/.exec(first.stdout()) ?? []
  t.match(first.stdout(), /sk-gw-mgmt-[0-9a-f]{64}/)
  const [, body = ''] = /curl -N .* -d '(.*)'/.exec(first.stdout()) ?? []
  const reply = await ask(first.url, key, JSON.parse(body))
  t.equal(reply.status, 200)
  t.equal(parseEventStream(await reply.text()).at(-1)?.type, 'response.completed')

  t.match(await (await fetch(`${first.adminUrl}/metrics`)).text(), /gateway_requests_total\{.*\} 1/)
  t.match(await (await fetch(`${first.adminUrl}/metrics`)).text(), /^gateway_storage_up 1$/m)
  t.same(await (await fetch(`${first.adminUrl}/readyz`)).json(), { status: 'ready' })
  t.equal((await fetch(`${first.adminUrl}/healthz`)).status, 200)
  t.equal((await fetch(`${first.url}/metrics`)).status, 404, 'not on the public port')

  first.process.kill('SIGTERM')
  t.same(await once(first.process, 'exit'), [0, null])
  t.equal(statSync(join(folder, 'data/gateway.db')).mode & 0o777, 0o600)
  t.equal(statSync(join(folder, 'data/vault.key')).mode & 0o777, 0o600)
  t.notMatch(readFileSync(join(folder, 'data/gateway.db')).toString('latin1'), key.slice(0, 30))

  const second = await start(t, folder)
  t.notMatch(second.stdout(), /sk-gw-/, 'the keys are not shown again')
  t.match(await (await ask(second.url, key, { model: 'sim/echo', input: 'hi' })).json(), {
    status: 'completed',
  })
  second.process.kill('SIGINT')
  t.same(await once(second.process, 'exit'), [0, null])
  t.equal(second.stderr(), '')
})

t.test('a stream that is running at SIGTERM is finished before the exit', async t => {
  const apiKey = `sk-gw-v1-${'a'.repeat(64)}`
  const gateway = await start(t, newFolder(), { GATEWAY_API_KEY: apiKey, GATEWAY_SERVE_THREADS: '2' })
  const reply = await ask(gateway.url, apiKey, {
    model: 'sim/write-200-20',
    input: 'x',
    stream: true,
    max_output_tokens: 60,
  })
  const reader = (reply.body as ReadableStream<Uint8Array>).getReader()
  const { value: begun } = await reader.read()
  gateway.process.kill('SIGTERM')
  let text = Buffer.from(begun ?? []).toString()
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read())
    text += Buffer.from(chunk.value).toString()
  t.equal(parseEventStream(text).at(-1)?.type, 'response.incomplete')
  t.same(await once(gateway.process, 'exit'), [0, null])
})

t.test(
  'a second signal ends the grace time: what runs is told its end, and the exit code says so',
  async t => {
    const apiKey = `sk-gw-v1-${'a'.repeat(64)}`
    const gateway = await start(t, newFolder(), { GATEWAY_API_KEY: apiKey })
    const reply = await ask(gateway.url, apiKey, { model: 'sim/write-200-20', input: 'x', stream: true })
    const reader = (reply.body as ReadableStream<Uint8Array>).getReader()
    let text = ''
    while (!text.includes('output_text.delta'))
      text += Buffer.from((await reader.read()).value ?? []).toString()
    gateway.process.kill('SIGTERM')
    while (!gateway.stdout().includes('"draining"')) await once(gateway.process.stdout, 'data')
    gateway.process.kill('SIGTERM')
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read())
      text += Buffer.from(chunk.value).toString()
    t.equal(parseEventStream(text).at(-1)?.type, 'response.failed')
    t.same(await once(gateway.process, 'exit'), [1, null])
    t.equal(gateway.stderr(), '')
  },
)

t.test('a new instance takes over the port of an old one, which finishes what it runs', async t => {
  const folder = newFolder()
  const apiKey = `sk-gw-v1-${'a'.repeat(64)}`
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const port = String((probe.address() as AddressInfo).port)
  probe.close()
  const shared = { GATEWAY_API_KEY: apiKey, GATEWAY_PORT: port, GATEWAY_SHARED_PORT: '1' }
  const first = await start(t, folder, shared)
  const { port: adminPort } = new URL(first.adminUrl)
  const refused = await Promise.all([
    finished(folder, ENTRY, [], { GATEWAY_PORT: port }),
    finished(folder, ENTRY, [], { ...shared, GATEWAY_ADMIN_PORT: adminPort }),
  ])
  t.match(refused, [
    { code: 3, stderr: /^sluice: listen\.port: / },
    { code: 3, stderr: /^sluice: admin\.port: / },
  ])
  const running = ask(first.url, apiKey, {
    model: 'sim/write-200-20',
    input: 'x',
    stream: true,
    max_output_tokens: 40,
  })
  const reply = await running
  const second = await start(t, folder, shared)
  t.equal(second.url, first.url)
  first.process.kill('SIGTERM')
  t.equal(parseEventStream(await reply.text()).at(-1)?.type, 'response.incomplete')
  t.same(await once(first.process, 'exit'), [0, null])
  t.match(await (await ask(second.url, apiKey, { model: 'sim/echo', input: 'hi' })).json(), {
    status: 'completed',
  })
  second.process.kill('SIGTERM')
  t.same(await once(second.process, 'exit'), [0, null])
})

t.test('keys made on the command line work, and are listed by hash', async t => {
  const folder = newFolder()
  const made = await finished(folder, CLI, ['keys', 'create', '--name', 'ci'])
  t.equal(made.code, 0)
  const key = made.stdout.trim()
  t.match(key, /^sk-gw-v1-[0-9a-f]{64}$/)
  const management = await finished(folder, CLI, ['keys', 'create', '--name', 'ops', '--management'])
  t.match(management.stdout, /^sk-gw-mgmt-[0-9a-f]{64}\n$/)
  const listed = await finished(folder, CLI, ['keys', 'list'])
  t.match(listed.stdout, /^[0-9a-f]{64}\tmanagement\t.*\tops\n[0-9a-f]{64}\tinference\t.*\tci\n$/)
  t.notMatch(listed.stdout, key)
  const gateway = await start(t, folder)
  t.notMatch(gateway.stdout(), /First keys/)
  t.equal((await ask(gateway.url, key, { model: 'sim/echo', input: 'x' })).status, 200)
  t.equal((await ask(gateway.url, management.stdout.trim(), { model: 'sim/echo', input: 'x' })).status, 403)
})

t.test('the command line explains itself', async t => {
  t.match(await finished(newFolder(), CLI, []), { code: 2, stderr: /usage:/ })
  t.match(await finished(newFolder(), CLI, ['--help']), { code: 0, stderr: /usage:/ })
  t.match(await finished(newFolder(), CLI, ['keys', 'create']), { code: 2, stderr: /--name: is required/ })
  t.match(await finished(newFolder(), CLI, ['check', '--nonsense']), { code: 2, stderr: /nonsense/ })
  t.match(await finished(newFolder(), CLI, ['check']), { code: 0, stdout: /configuration is good/ })
})

t.test('a bad configuration ends with code 2 and one line that names the field', async t => {
  const folder = newFolder()
  writeFileSync(join(folder, 'bad.yaml'), 'models: [{ id: a/b, endpoints: [{ provider: nowhere }] }]')
  for (const [entry, words] of [
    [ENTRY, ['--config', 'bad.yaml']],
    [CLI, ['check', '--config', 'bad.yaml']],
  ] as const) {
    const { code, stderr } = await finished(folder, entry, words)
    t.equal(code, 2)
    t.match(stderr, /^sluice: models\[0\]\.endpoints\[0\]\.provider: .*\n$/)
  }
  const bad = [
    { GATEWAY_API_KEY: 'short' },
    { GATEWAY_MANAGEMENT_KEY: 'sk-gw-v1-x' },
    { GATEWAY_VAULT_KEYS: 'k1:short' },
    { DATABASE_URL: 'mysql://x' },
    { DATABASE_URL: 'sqlite::memory:' },
    { GATEWAY_PORT: 'x' },
  ]
  for (const environment of bad) {
    const { code, stderr } = await finished(
      newFolder(),
      ENTRY,
      [],
      environment as unknown as Record<string, string>,
    )
    t.equal(code, 2, JSON.stringify(environment))
    t.match(stderr, /^sluice: .+\n$/)
  }
})

t.test('a port that is taken ends with code 3', async t => {
  const taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  t.teardown(() => taken.close())
  const address = taken.address()
  const port = String(typeof address === 'object' && address !== null ? address.port : 0)
  for (const variable of ['GATEWAY_PORT', 'GATEWAY_ADMIN_PORT']) {
    const { code, stderr } = await finished(newFolder(), ENTRY, [], { [variable]: port })
    t.equal(code, 3, variable)
    t.match(stderr, /^sluice: (listen|admin)\.port: .*\n$/)
  }
})
