/** The product as it is started: the real process, its output, signals and exit codes. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { StreamEvent } from '../src/protocol/events.ts'
import { freePort } from './support/free-port.ts'
import { parseEventStream } from './support/gateway.ts'
import { CLI, MAIN, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from './support/product.ts'
import { HELD_MODEL, type HeldProvider, startHeldProvider } from './support/provider.ts'
import { tempFolder } from './support/temp-folder.ts'

interface Running {
  readonly process: ChildProcessWithoutNullStreams
  readonly url: string
  readonly adminUrl: string
  /** Exit code and signal, once it has ended and all that it wrote was read. */
  readonly ended: Promise<readonly unknown[]>
  stdout(): string
  stderr(): string
  /** Resolves when it has written this. */
  wrote(what: string | RegExp): Promise<void>
}

function run(
  folder: string,
  entry: string,
  words: readonly string[],
  environment: Record<string, string> = {},
) {
  const child = spawn(process.execPath, [...PRODUCT_FLAGS, entry, ...words], {
    cwd: folder,
    env: { ...PRODUCT_ENVIRONMENT, GATEWAY_PORT: '0', GATEWAY_ADMIN_PORT: '0', ...environment },
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
  // Threads share their port, and would share it with those of another gateway that chose the same one meanwhile.
  const port = String(await freePort())
  const { child, stdout, stderr } = run(folder, MAIN, [], { GATEWAY_PORT: port, ...environment })
  const ended = once(child, 'close')
  t.teardown(() => child.kill('SIGKILL'))
  const wrote = async (what: string | RegExp): Promise<void> => {
    while (stdout().search(what) === -1) {
      const over = await Promise.race([once(child.stdout, 'data').then(() => false), ended.then(() => true)])
      if (over && stdout().search(what) === -1) throw new Error(`did not write ${what}: ${stderr()}`)
    }
  }
  const line = /^.*"msg":"listening".*(?=\n)/m
  await wrote(line)
  const { url, adminUrl } = JSON.parse(line.exec(stdout())?.[0] ?? '') as { url: string; adminUrl: string }
  return { process: child, url, adminUrl, ended, stdout, stderr, wrote }
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

const API_KEY = 'sk-gw-v1-ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'
const newFolder = () => tempFolder('sluice-main')
const ask = (url: string, key: string, body: unknown) =>
  fetch(`${url}/v1/responses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })

/** Folder and environment of a gateway with this provider. */
function heldBy(provider: HeldProvider): { folder: string; environment: Record<string, string> } {
  const folder = newFolder()
  writeFileSync(join(folder, 'gateway.yaml'), JSON.stringify(provider.settings))
  return { folder, environment: { GATEWAY_API_KEY: API_KEY, GATEWAY_CONFIG: 'gateway.yaml' } }
}

/** Asks for a stream and waits for its first text; what comes later is read by `rest`. */
async function begun(url: string, key: string): Promise<{ rest(): Promise<StreamEvent[]> }> {
  const reply = await ask(url, key, { model: HELD_MODEL, input: 'x', stream: true })
  const reader = (reply.body as ReadableStream<Uint8Array>).getReader()
  const decoder = new TextDecoder()
  let text = ''
  const more = async (): Promise<boolean> => {
    const { done, value } = await reader.read()
    text += decoder.decode(value, { stream: !done })
    return !done
  }
  while (!text.includes('output_text.delta')) if (!(await more())) throw new Error(`no text: ${text}`)
  return {
    async rest() {
      while (await more());
      return parseEventStream(text)
    },
  }
}

t.test('a fresh folder: keys and a curl line are in a file, and the request in it streams', async t => {
  const folder = newFolder()
  const first = await start(t, folder)
  const file = join(folder, 'data/first-keys')
  await first.wrote(/the first keys were written to a file.*\n/)
  for (const line of first.stdout().trimEnd().split('\n')) t.equal(typeof JSON.parse(line), 'object')
  t.match(first.stdout(), JSON.stringify(file))
  t.notMatch(first.stdout() + first.stderr(), 'sk-gw-')
  t.equal(statSync(file).mode & 0o777, 0o600)
  const told = readFileSync(file, 'utf8')
  const [, key = ''] = /(sk-gw-v1-[0-9a-f]{64})/.exec(told) ?? []
  t.match(told, /sk-gw-mgmt-[0-9a-f]{64}/)
  const [, body = ''] = /curl -N .* -d '(.*)'/.exec(told) ?? []
  const reply = await ask(first.url, key, JSON.parse(body))
  t.equal(reply.status, 200)
  t.equal(parseEventStream(await reply.text()).at(-1)?.type, 'response.completed')

  t.match(await (await fetch(`${first.adminUrl}/metrics`)).text(), /gateway_requests_total\{.*\} 1/)
  t.match(await (await fetch(`${first.adminUrl}/metrics`)).text(), /^gateway_storage_up 1$/m)
  t.same(await (await fetch(`${first.adminUrl}/readyz`)).json(), { status: 'ready' })
  t.equal((await fetch(`${first.adminUrl}/healthz`)).status, 200)
  t.equal((await fetch(`${first.url}/metrics`)).status, 404, 'not on the public port')

  first.process.kill('SIGTERM')
  t.same(await first.ended, [0, null])
  t.equal(statSync(join(folder, 'data/gateway.db')).mode & 0o777, 0o600)
  t.equal(statSync(join(folder, 'data/vault.key')).mode & 0o777, 0o600)
  t.notMatch(readFileSync(join(folder, 'data/gateway.db')).toString('latin1'), key.slice(0, 30))

  const second = await start(t, folder)
  await second.wrote('the first keys are still in a file')
  t.equal(readFileSync(file, 'utf8'), told, 'it is left as it was')
  t.match(await (await ask(second.url, key, { model: 'sim/echo', input: 'hi' })).json(), {
    status: 'completed',
  })
  second.process.kill('SIGINT')
  t.same(await second.ended, [0, null])
  t.equal(second.stderr(), '')
})

t.test('a stream that is running at SIGTERM is finished before the exit', async t => {
  const provider = await startHeldProvider(t)
  const { folder, environment } = heldBy(provider)
  const gateway = await start(t, folder, { ...environment, GATEWAY_SERVE_THREADS: '2' })
  const stream = await begun(gateway.url, API_KEY)
  gateway.process.kill('SIGTERM')
  await gateway.wrote('"draining"')
  t.equal(provider.running, 1, 'nothing has ended it')
  provider.finish()
  t.equal((await stream.rest()).at(-1)?.type, 'response.completed')
  t.same(await gateway.ended, [0, null])
})

t.test(
  'a second signal ends the grace time: what runs is told its end, and the exit code says so',
  async t => {
    const provider = await startHeldProvider(t)
    const { folder, environment } = heldBy(provider)
    const gateway = await start(t, folder, environment)
    const stream = await begun(gateway.url, API_KEY)
    gateway.process.kill('SIGTERM')
    await gateway.wrote('"draining"')
    t.equal(provider.running, 1, 'the first one has not ended it')
    gateway.process.kill('SIGTERM')
    t.equal((await stream.rest()).at(-1)?.type, 'response.failed')
    t.same(await gateway.ended, [1, null])
    t.equal(gateway.stderr(), '')
  },
)

t.test('a new instance takes over the port of an old one, which finishes what it runs', async t => {
  const provider = await startHeldProvider(t)
  const { folder, environment } = heldBy(provider)
  const port = String(await freePort())
  const shared = { ...environment, GATEWAY_PORT: port, GATEWAY_SHARED_PORT: '1' }
  const first = await start(t, folder, shared)
  const { port: adminPort } = new URL(first.adminUrl)
  const refused = await Promise.all([
    finished(folder, MAIN, [], { GATEWAY_PORT: port }),
    finished(folder, MAIN, [], { ...shared, GATEWAY_ADMIN_PORT: adminPort }),
  ])
  t.match(refused, [
    { code: 3, stderr: /^sluice: listen\.port: / },
    { code: 3, stderr: /^sluice: admin\.port: / },
  ])
  const stream = await begun(first.url, API_KEY)
  const second = await start(t, folder, shared)
  t.equal(second.url, first.url)
  first.process.kill('SIGTERM')
  await first.wrote('"draining"')
  t.equal(provider.running, 1, 'nothing has ended it')
  provider.finish()
  t.equal((await stream.rest()).at(-1)?.type, 'response.completed')
  t.same(await first.ended, [0, null])
  const events = await (await begun(second.url, API_KEY)).rest()
  t.equal(events.at(-1)?.type, 'response.completed')
  second.process.kill('SIGTERM')
  t.same(await second.ended, [0, null])
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
  t.notOk(readdirSync(join(folder, 'data')).includes('first-keys'), 'there are keys already')
  t.equal((await ask(gateway.url, key, { model: 'sim/echo', input: 'x' })).status, 200)
  t.equal((await ask(gateway.url, management.stdout.trim(), { model: 'sim/echo', input: 'x' })).status, 403)
})

t.test('the command line explains itself', async t => {
  t.match(await finished(newFolder(), CLI, []), { code: 2, stderr: /usage:/ })
  t.match(await finished(newFolder(), CLI, ['--help']), { code: 0, stdout: /usage:/ })
  t.match(await finished(newFolder(), CLI, ['keys', 'create']), { code: 2, stderr: /--name: is required/ })
  t.match(await finished(newFolder(), CLI, ['check', '--nonsense']), { code: 2, stderr: /nonsense/ })
  t.match(await finished(newFolder(), CLI, ['check']), {
    code: 0,
    stdout:
      /^the configuration is valid: 0 providers with a key, 0 models and those that providers list, simulator on\n$/,
  })
})

t.test('a bad configuration ends with code 2 and one line that names the field', async t => {
  const folder = newFolder()
  writeFileSync(join(folder, 'bad.yaml'), 'models: [{ id: a/b, endpoints: [{ provider: nowhere }] }]')
  for (const [entry, words] of [
    [MAIN, ['--config', 'bad.yaml']],
    [CLI, ['check', '--config', 'bad.yaml']],
  ] as const) {
    const { code, stderr } = await finished(folder, entry, words)
    t.equal(code, 2)
    t.match(stderr, /^sluice: models\[0\]\.endpoints\[0\]\.provider: .*\n$/)
  }
  for (const [name, value] of [
    ['DATABASE_URL', 'mysql://x'],
    ['GATEWAY_PORT', 'x'],
  ] as const) {
    const { code, stderr } = await finished(newFolder(), MAIN, [], { [name]: value })
    t.equal(code, 2, name)
    t.match(stderr, /^sluice: .+\n$/)
  }
})

t.test('a bad key file of proofs ends with code 2 and says what to do', async t => {
  const folder = newFolder()
  mkdirSync(join(folder, 'data'), { mode: 0o700 })
  writeFileSync(join(folder, 'data/proof.key'), '{"keys":[]}', { mode: 0o600 })
  for (const [entry, words] of [
    [MAIN, []],
    [CLI, ['check']],
  ] as const) {
    const { code, stderr } = await finished(folder, entry, words)
    t.equal(code, 2)
    t.match(stderr, /^sluice: proof\.keyFile: \.\/data\/proof\.key: is not a JWK set with an Ed25519 key/)
  }
})

t.test('a bad configuration has one line for each fault, from the file and the environment', async t => {
  const folder = newFolder()
  writeFileSync(join(folder, 'bad.yaml'), 'listen: { prot: 1 }\nadmin: { port: x }')
  for (const [entry, words] of [
    [MAIN, ['--config', 'bad.yaml']],
    [CLI, ['check', '--config', 'bad.yaml']],
  ] as const) {
    const { code, stdout, stderr } = await finished(folder, entry, words, { LOG_LEVEL: 'loud' })
    t.equal(code, 2)
    t.equal(stdout, '')
    const lines = stderr.trimEnd().split('\n').toSorted()
    t.equal(lines.length, 3, stderr)
    t.match(lines[0], /^sluice: LOG_LEVEL: expected one of /)
    t.match(lines[1], /^sluice: admin\.port: /)
    t.match(lines[2], /^sluice: listen\.prot: unknown setting; did you mean port\?$/)
  }
})

t.test('faults beyond single settings are reported together, before anything is opened', async t => {
  const folder = newFolder()
  writeFileSync(join(folder, 'bad.yaml'), 'models: [{ id: a/b, endpoints: [{ provider: nowhere }] }]')
  const { code, stderr } = await finished(folder, MAIN, ['--config', 'bad.yaml'], {
    DATABASE_URL: 'sqlite::memory:',
    GATEWAY_API_KEY: 'short',
    GATEWAY_MANAGEMENT_KEY: 'sk-gw-v1-x',
    GATEWAY_VAULT_KEYS: 'k1:short',
  })
  t.equal(code, 2)
  const fields = stderr
    .trimEnd()
    .split('\n')
    .map(line => line.split(': ')[1])
  t.same(fields.toSorted(), [
    'GATEWAY_API_KEY',
    'GATEWAY_MANAGEMENT_KEY',
    'GATEWAY_VAULT_KEYS',
    'models[0].endpoints[0].provider',
    'storage.url',
  ])
  const { stderr: once } = await finished(folder, MAIN, ['--config', 'bad.yaml'])
  t.match(once, /^sluice: models.*\n$/)
  t.same(readdirSync(folder), ['bad.yaml'], 'no key file was made')
})

t.test('a port that is taken ends with code 3', async t => {
  const taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  t.teardown(() => taken.close())
  const address = taken.address()
  const port = String(typeof address === 'object' && address !== null ? address.port : 0)
  for (const variable of ['GATEWAY_PORT', 'GATEWAY_ADMIN_PORT']) {
    const { code, stderr } = await finished(newFolder(), MAIN, [], { [variable]: port })
    t.equal(code, 3, variable)
    t.match(stderr, /^sluice: (listen|admin)\.port: .*\n$/)
  }
})
