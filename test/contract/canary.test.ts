/**
 * Secrets of every kind go into a whole gateway, which is then made to fail in every way at hand, at the most
 * talkative log level; afterwards everything that it answered, wrote and kept is looked through for them.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, unlinkSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { SIM_FORMATS, simModel } from '../../src/apps/simulator/rows.ts'
import { hashKey } from '../../src/callers/api-key.ts'
import { refusals } from '../support/canary-asks.ts'
import { type Ask, CanaryClient } from '../support/canary-client.ts'
import { brokenFiles, gatewaySettings, LONG, SHORT } from '../support/canary-config.ts'
import { CanaryProcess, type RunningGateway } from '../support/canary-process.ts'
import {
  FORMATS,
  order,
  PLACES,
  type Place,
  startCanaryProvider,
  WRITINGS,
  type Writing,
} from '../support/canary-provider.ts'
import { encodings, Scanner } from '../support/canary-scan.ts'
import { makeSecrets } from '../support/canary-secrets.ts'
import { captured } from '../support/captured.ts'
import { FAULTS, FaultServer, REFUSALS, reply } from '../support/fault-server.ts'
import { allOperations } from '../support/operations.ts'
import { createFaultySim, FAULTS as SIM_FAULTS } from '../support/sim-faults.ts'

/** Occurrences that are told in full: they are alike. */
const SHOWN = 50

const secrets = makeSecrets()
const scanner = new Scanner(secrets.canaries)

t.test('what looks for secrets finds each one, however it is written and wherever it stands', async t => {
  let planted = 0
  const folder = t.testdir({})
  for (const canary of secrets.canaries) {
    const whole = canary.bytes ?? Buffer.from(canary.text)
    const middle = whole.length >> 1
    for (const part of [whole, whole.subarray(0, middle), whole.subarray(middle)]) {
      for (const [encoding, written] of encodings(part)) {
        const probe = new Scanner(secrets.canaries)
        const file = join(folder, 'planted')
        writeFileSync(
          file,
          Buffer.concat([Buffer.from('\0before '), written, Buffer.from(' after\xff', 'latin1')]),
        )
        const hits = probe.scan('planted', readFileSync(file))
        planted++
        if (!hits.some(hit => hit.canary === canary.name))
          t.fail(`${canary.name} as ${encoding} is not found`)
      }
    }
  }
  t.comment(`${planted} planted, ${scanner.needles} needles`)
  t.ok(planted > 500)
  const innocent = new Scanner(secrets.canaries)
  for (const source of ['src/server/server.ts', 'package-lock.json', 'docs/byok.md'])
    innocent.scan(source, readFileSync(join(import.meta.dirname, '../..', source)))
  t.strictSame(innocent.hits, [], 'and nothing where nothing is')
})

/** Waits for something that the processes do on their own. */
async function until(
  what: string,
  condition: () => Promise<boolean> | boolean,
  log: () => string,
): Promise<void> {
  const giveUpMs = performance.now() + 60_000
  while (!(await condition())) {
    if (performance.now() > giveUpMs) throw new Error(`waited in vain until ${what}: ${log().slice(-2_000)}`)
    await delay(20)
  }
}

t.test('no secret leaves the gateway or rests in it', { timeout: 280_000 }, async t => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-canary-'))
  const provider = await startCanaryProvider(secrets)
  const sim = createFaultySim({ keepRequests: 0 })
  const faulty = await FaultServer.start(answering => {
    const [, name] = /FAULT<([^>]*)>/.exec(answering.request.body) ?? []
    const fault = FAULTS.find(candidate => candidate.name === name)
    const refusal = Object.entries(REFUSALS).find(([candidate]) => candidate === name)?.[1]
    if (fault !== undefined) {
      fault.first(answering)
      const { second } = fault
      if (second !== undefined) setImmediate(() => second(answering))
    } else if (refusal !== undefined) refusal(answering)
    else answering.send(reply(200, '{}'))
  })
  const { url: simUrl } = await sim.listen()
  const gateway = new CanaryProcess(folder, {
    GATEWAY_API_KEY: secrets.apiKey,
    GATEWAY_MANAGEMENT_KEY: secrets.managementKey,
    GATEWAY_VAULT_KEYS: secrets.vaultKeys,
    CANARIES: secrets.all,
  })
  const client = new CanaryClient(scanner)
  t.teardown(async () => {
    client.close()
    await gateway.close()
    provider.close()
    await faulty.close()
    await sim.close()
    rmSync(folder, { recursive: true, force: true })
  })
  const upstreams = { canary: provider.url, faulty: String(faulty.url('')), sim: simUrl }
  for (const [file, deadlines] of [
    ['gateway.json', SHORT],
    ['patient.json', LONG],
  ] as const)
    writeFileSync(join(folder, file), JSON.stringify(gatewaySettings(upstreams, secrets, deadlines)))

  // As long as its providers are to be heard.
  let running = await gateway.start('patient.json')
  const respond = (name: string, body: object, headers: Record<string, string> = {}): Ask => ({
    name: `response: ${name}`,
    method: 'POST',
    path: '/v1/responses',
    key: secrets.apiKey,
    headers: { 'x-gateway-metadata': 'enabled', ...headers },
    body: {
      input: secrets.prompt,
      user: secrets.endUser,
      safety_identifier: secrets.safetyIdentifier,
      instructions: secrets.prompt,
      debug: { echo_upstream_body: true },
      ...body,
    },
  })
  const embed = (name: string, body: object): Ask => ({
    name: `embeddings: ${name}`,
    method: 'POST',
    path: '/v1/embeddings',
    key: secrets.apiKey,
    headers: { 'x-gateway-metadata': 'enabled' },
    body: {
      input: [secrets.prompt],
      user: secrets.endUser,
      safety_identifier: secrets.safetyIdentifier,
      ...body,
    },
  })
  const manage = (method: string, path: string, body?: unknown, key = secrets.managementKey): Ask => ({
    name: `${method} ${path}`,
    method,
    path: `/v1${path}`,
    key,
    ...(body === undefined ? {} : { body }),
  })
  /**
   * Looks through what the process keeps. By design the end user is in usage records, lines of batches and their
   * results are in the database, and nothing else is anywhere.
   */
  const scanFiles = (when: string) => {
    const spooled = new Set(['end user'])
    const stored = new Set([...spooled, 'batch prompt', 'batch output'])
    for (const [name, content] of gateway.contents('data/')) {
      const isSpool = name.startsWith('data/spool/')
      const allowed = name.startsWith('data/gateway.db') ? stored : isSpool ? spooled : undefined
      scanner.scan(`${name} ${when}`, content, allowed)
    }
  }
  const scanAdmin = async ({ adminUrl }: RunningGateway, when: string) => {
    for (const path of ['/metrics', '/healthz', '/readyz', `/${secrets.sharedKey}?key=${secrets.apiKey}`]) {
      const got = await fetch(adminUrl + path)
      scanner.scan(`${path} ${when}`, `${[...got.headers].join()}\n${await got.text()}`)
    }
  }

  let capture = ''
  await t.test('all that the key asks from here on is captured', async t => {
    const body = { key_hash: hashKey(secrets.apiKey), minutes: 60 }
    const told = await client.send(running.url, manage('POST', '/captures', body))
    t.equal(told.status, 201, told.text)
    capture = (JSON.parse(told.text) as { data: { id: string } }).data.id
  })

  await t.test('good requests', async t => {
    for (const own of [
      ...secrets.ownKeys,
      ...FORMATS.map(format => ({ provider: `own-${format}`, key: secrets.ownKey })),
    ]) {
      const told = await client.send(running.url, {
        ...manage('POST', '/byok', own),
        name: `POST /byok for ${own.provider}`,
      })
      t.equal(told.status, 201, told.text)
    }
    const registered = await client.send(running.url, manage('POST', '/end-users', { user: secrets.endUser }))
    t.equal(registered.status, 201)
    const made = await client.send(running.url, manage('POST', '/keys', { name: 'shown once' }))
    const { key, data } = JSON.parse(made.text) as { key: string; data: { hash: string } }
    // From here on it is a secret like the others.
    scanner.add({ name: 'new API key', text: key })
    const rotated = await client.send(
      running.url,
      manage('POST', `/keys/${data.hash}/rotate`, { overlap_seconds: 60 }),
    )
    scanner.add({ name: 'rotated API key', text: (JSON.parse(rotated.text) as { key: string }).key })
    for (const path of [
      '/keys',
      '/key',
      '/byok',
      '/byok?provider=azure',
      '/workspaces',
      '/end-users',
      '/credits',
      '/activity',
    ]) {
      t.equal((await client.send(running.url, manage('GET', path))).status, 200, path)
    }
    for (const path of ['/models', '/providers', '/key']) {
      t.equal((await client.send(running.url, manage('GET', path, undefined, key))).status, 200, path)
    }
    for (const kind of ['shared', 'own']) {
      for (const format of FORMATS) {
        const told = await client.send(
          running.url,
          respond(`${kind} ${format}`, { model: `${kind}/${format}` }),
        )
        t.equal(told.status, 200, told.text)
        t.match(told.text, secrets.output)
        const { id } = JSON.parse(told.text) as { id: string }
        const record = await client.send(running.url, {
          ...manage('GET', `/generation?id=${id}`, undefined, secrets.apiKey),
          name: `GET /generation of ${kind} ${format}`,
        })
        t.equal(record.status, 200, record.text)
      }
    }
    for (const format of SIM_FORMATS) {
      const { id } = simModel('call', format)
      const tools = [{ type: 'function', name: 'tool', description: secrets.toolArgument, parameters: null }]
      const call = {
        type: 'function_call',
        call_id: 'c',
        name: 'tool',
        arguments: JSON.stringify({ a: secrets.toolArgument }),
      }
      const output = { type: 'function_call_output', call_id: 'c', output: secrets.toolArgument }
      for (const stream of [false, true]) {
        const input = [{ role: 'user', content: secrets.prompt }, call, output]
        const told = await client.send(
          running.url,
          respond(`tools by ${format}, ${stream}`, { model: id, tools, input, stream }),
        )
        t.equal(told.status, 200, told.text)
      }
    }
    t.ok(
      provider.keys.has(secrets.sharedKey) && provider.keys.has(secrets.ownKey),
      'the provider was given the keys',
    )
  })

  await t.test('refusals of every operation', async () => {
    await client.sendAll(running.url, refusals(await allOperations(t), secrets))
    await client.sendAll(running.url, [
      manage('GET', `/${secrets.sharedKey}`),
      manage('GET', `/unknown/${secrets.apiKey}?${secrets.apiKey}`),
      { ...manage('BREW', '/responses'), name: 'a method that is none' },
      {
        ...manage('POST', '/responses', 'x'.repeat(21 * 1024 * 1024) + secrets.all),
        name: 'a body that is too large',
      },
      {
        ...manage('POST', '/keys', JSON.stringify({ name: secrets.all.repeat(300) })),
        name: 'a name that is too large',
      },
      { ...respond('a model of the caller', { model: secrets.toolArgument }), echoes: true },
      respond('a model of nobody', { model: 'no/body', stream: true }),
      ...secrets.ownKeys.map(own =>
        respond(`a BYOK key of ${own.provider}`, { model: `own/${own.provider}` }),
      ),
    ])
  })

  await t.test('providers that repeat the key', async () => {
    const asks: Ask[] = []
    for (const kind of ['shared', 'own'])
      for (const format of FORMATS)
        for (const place of Object.keys(PLACES) as Place[])
          for (const writing of Object.keys(WRITINGS) as Writing[])
            for (const stream of [false, true]) {
              const name = `${kind} key as ${writing} in ${place} by ${format}, ${stream ? 'streamed' : 'whole'}`
              const input = `${secrets.prompt} ${order(place, writing)}`
              asks.push(respond(name, { model: `${kind}/${format}`, input, stream }))
            }
    for (const kind of ['shared', 'own'])
      for (const place of Object.keys(PLACES) as Place[])
        for (const writing of Object.keys(WRITINGS) as Writing[]) {
          const input = `${secrets.prompt} ${order(place, writing)}`
          asks.push(embed(`${kind} key as ${writing} in ${place}`, { model: `${kind}/vectors`, input }))
        }
    await client.sendAll(running.url, asks)
  })

  await t.test('batches that succeed, with lines whose provider repeats the key', async t => {
    const orders: readonly (readonly [Place, Writing])[] = [
      ...(Object.keys(PLACES) as Place[]).map(place => [place, 'plain'] as const),
      ...(Object.keys(WRITINGS) as Writing[]).map(writing => ['invalid', writing] as const),
    ]
    const bodyOf = (text: string) => ({
      input: text,
      instructions: secrets.batchPrompt,
      user: secrets.endUser,
    })
    const run = async (model: string) => {
      const made = await client.send(running.url, {
        ...manage('POST', '/batches', undefined, secrets.apiKey),
        name: `POST /batches of ${model}`,
        headers: { 'x-gateway-metadata': 'enabled' },
        body: {
          endpoint: '/v1/responses',
          model,
          requests: [secrets.batchPrompt, ...orders.map(each => order(...each))].map((text, at) => ({
            custom_id: `line-${at}`,
            body: bodyOf(text),
          })),
        },
      })
      t.equal(made.status, 202, made.text)
      const { id } = JSON.parse(made.text) as { id: string }
      const find = { ...manage('GET', `/batches/${id}`, undefined, secrets.apiKey), name: `GET of ${model}` }
      let told = made.text
      const hasEnded = async (): Promise<boolean> => {
        told = (await client.send(running.url, find)).text
        return (JSON.parse(told) as { results: unknown }).results !== null
      }
      await until(`the batch of ${model} has ended`, hasEnded, () => told)
      const { status, results } = JSON.parse(told) as { status: string; results: Record<string, unknown>[] }
      t.equal(status, 'completed')
      t.equal(results.length, orders.length + 1)
      t.match(JSON.stringify(results[0]?.['response']), secrets.batchOutput)
      const failed = results.filter(({ error }) => error !== null)
      t.ok(failed.length >= orders.length - 1, `${failed.length} lines failed`)
      t.match(JSON.stringify(failed), 'Incorrect API key provided', 'with the words of the provider')
    }
    const before = provider.keys.size
    // No more at once than one key may send.
    for (const kind of ['shared', 'own']) await Promise.all(FORMATS.map(format => run(`${kind}/${format}`)))
    t.equal(provider.keys.size, before, 'with the keys that were given')
    const list = { ...manage('GET', '/batches', undefined, secrets.apiKey), name: 'GET /batches' }
    t.equal((await client.send(running.url, list)).status, 200)
  })

  await t.test('another start, with short deadlines', async t => {
    t.equal(await running.end('SIGTERM'), 0)
    const storageUrl = `sqlite:${join(folder, 'data/gateway.db')}`
    const { text, records } = await captured({ storageUrl, vaultKeys: secrets.vaultKeys }, capture)
    t.ok(records.length > 300, `${records.length} requests were captured`)
    t.match(text, secrets.prompt)
    // By design it has what the caller said and was told: no key of the gateway, and of others those alone that the
    // caller itself wrote into a request that they do not belong to.
    const all = new Scanner(secrets.canaries.filter(({ name }) => /key|AWS|Azure/i.test(name)))
    const ours = new Scanner(
      [secrets.apiKey, secrets.managementKey].map(text => ({ name: 'key of ours', text })),
    )
    for (const record of records) {
      const isWritten = /own-k\/|sk-regional|\bword[0-9a-f]{40}/i.test(JSON.stringify(record.request))
      const keys = isWritten ? ours : all
      keys.scan(record.generation_id, JSON.stringify(record))
      for (const { reply } of record.calls ?? [])
        keys.scan(`bytes of ${record.generation_id}`, Buffer.from(reply.base64 ?? '', 'base64'))
    }
    t.same([...all.hits, ...ours.hits].slice(0, SHOWN), [])
    running = await gateway.start('gateway.json')
  })

  await t.test('what is hardly HTTP', async () => {
    const { port } = running
    const auth = `Authorization: Bearer ${secrets.apiKey}\r\n`
    const head = `POST /v1/responses HTTP/1.1\r\nHost: h\r\n${auth}Content-Type: application/json\r\n`
    const { prompt, sharedKey, apiKey } = secrets
    const raws = {
      'two keys': `GET /v1/models HTTP/1.1\r\nHost: h\r\n${auth}${auth}\r\n`,
      'a host of a key': `GET /v1/models HTTP/1.1\r\nHost: ${sharedKey}\r\n${auth}\r\n`,
      'a version that is none': `GET /${apiKey} HTTP/9.9\r\nHost: h\r\n${auth}\r\n`,
      'a coding of a key': `${head}Transfer-Encoding: ${sharedKey}\r\n\r\n${prompt}`,
      'a length of a key': `${head}Content-Length: ${sharedKey}\r\n\r\n${prompt}`,
      'a chunk of a key': `${head}Transfer-Encoding: chunked\r\n\r\n${apiKey}\r\n${prompt}\r\n`,
      'both framings': `${head}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n${prompt}`,
      'no length': `${head}\r\n${prompt}`,
      'too great a length': `${head}Content-Length: 99999999\r\n\r\n${prompt}`,
      'a head that is too long': `${head}x: ${apiKey.repeat(400)}\r\n\r\n`,
      'a query that is no URL': `GET /v1/models?${prompt} ${apiKey} HTTP/1.1\r\nHost: h\r\n\r\n`,
      'bytes of no encoding': `${head}Content-Length: ${apiKey.length + 4}\r\n\r\n{"\xff${apiKey}"`,
    }
    for (const [name, bytes] of Object.entries(raws)) await client.raw(port, `raw: ${name}`, bytes)
  })

  /** Starts with everything that no gateway starts with; returns the codes with which they ended, by what it was. */
  const startUnusable = async (): Promise<ReadonlyMap<string, number | null>> => {
    const files = brokenFiles(secrets)
    const codes = new Map<string, number | null>()
    mkdirSync(join(folder, 'broken'))
    const names = Object.keys(files).map((name, index) => {
      client.paths.add(`configuration: ${name}`)
      writeFileSync(join(folder, `broken/${index}.yaml`), files[name] ?? '')
      return `broken/${index}.yaml`
    })
    const corrupt = join(folder, 'corrupt.db')
    writeFileSync(corrupt, secrets.all.repeat(20))
    const environments: Readonly<Record<string, Record<string, string>>> = {
      'an API key of the other kind': { GATEWAY_API_KEY: secrets.managementKey },
      'a management key of the other kind': { GATEWAY_MANAGEMENT_KEY: secrets.apiKey },
      'a vault key without an id': { GATEWAY_VAULT_KEYS: secrets.vaultKey.toString('base64') },
      'a vault key that is too long': { GATEWAY_VAULT_KEYS: `a:${secrets.vaultKey.toString('base64')}x` },
      'a Redis URL that is none': { REDIS_URL: `redis:/${secrets.sharedKey}` },
      'a storage of another kind': { DATABASE_URL: `mysql://u:${secrets.sharedKey}@h/` },
      'a level that is none': { LOG_LEVEL: secrets.sharedKey },
      'a port that is none': { GATEWAY_PORT: secrets.sharedKey },
      'a database that is corrupt': { DATABASE_URL: `sqlite:${corrupt}` },
      'a database that is a folder': { DATABASE_URL: `sqlite:${folder}` },
      'a database that cannot be made': { DATABASE_URL: 'sqlite:/dev/null/x' },
    }
    for (const [name, environment] of Object.entries(environments)) {
      client.paths.add(`environment: ${name}`)
      codes.set(name, (await gateway.run('main', ['--config', 'gateway.json'], environment)).code)
    }
    for (const file of [names[0], names.at(-1)]) {
      codes.set(`check of ${file}`, (await gateway.run('cli', ['check', '--config', file ?? ''])).code)
    }
    const checked = await gateway.run('check', names)
    if (checked.code === 0 && checked.stdout.trim().split('\n').length === names.length) {
      codes.set('check of all', 2)
    } else codes.set(`check of all: ${checked.stdout}${checked.stderr}`, checked.code)
    return codes
  }

  // Beside what mostly waits.
  const unusable = startUnusable()
  await t.test('providers that fail, and a database that is locked', async t => {
    const asks: Ask[] = []
    for (const stream of [false, true]) {
      const way = stream ? 'streamed' : 'whole'
      for (const format of SIM_FORMATS)
        for (const kind of Object.keys(SIM_FAULTS)) {
          const { id } = simModel(`fail-${kind}`, format)
          asks.push(respond(`${kind} by ${format}, ${way}`, { model: id, stream }))
        }
      for (const name of [...FAULTS.map(fault => fault.name), ...Object.keys(REFUSALS)])
        for (const format of FORMATS) {
          const input = `${secrets.prompt} FAULT<${name}>`
          asks.push(respond(`${name} by ${format}, ${way}`, { model: `faulty/${format}`, input, stream }))
        }
    }
    for (const mode of ['audit', 'enforce'])
      for (const model of ['shared/openai-chat', 'own/openai-responses', 'sim/fail-status', 'sim/echo']) {
        const plugins = [{ id: 'alignment', mode, rules: [`It never says ${secrets.toolArgument}.`] }]
        for (const stream of [false, true])
          asks.push({
            ...respond(`alignment in ${mode} of ${model}, ${stream}`, { model, plugins, stream }),
            echoes: true,
          })
      }
    // Meanwhile nobody can write to the database: who has to, waits its ten seconds.
    const lock = new DatabaseSync(join(folder, 'data/gateway.db'), { timeout: 10_000 })
    lock.exec('BEGIN IMMEDIATE')
    const writers = [
      manage('POST', '/credits', { amount: 1, note: 'locked' }),
      manage('POST', '/byok', { provider: 'groq', key: secrets.ownKey }),
      manage('POST', '/end-users', { user: `${secrets.endUser}3` }),
    ].map(ask => client.send(running.url, { ...ask, name: `${ask.name} while the database is locked` }))
    await client.sendAll(running.url, asks)
    for (const told of await Promise.all(writers)) t.ok(told.status >= 500 || told.status === 408, told.text)
    lock.close()
  })

  await t.test('callers that leave', async () => {
    const body = JSON.stringify({ model: 'sim/write-200-20', input: secrets.prompt, stream: true })
    const head = `POST /v1/responses HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${secrets.apiKey}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`
    const whole = head + body
    for (const [name, bytes, wait] of [
      ['inside the head', whole.slice(0, 60), false],
      ['inside the body', whole.slice(0, -9), false],
      ['before the answer', whole, false],
      ['inside the answer', whole, true],
    ] as const) {
      client.paths.add(`caller leaves ${name}`)
      const socket = connect(running.port, '127.0.0.1')
      await new Promise(resolve => socket.write(bytes, resolve))
      if (wait)
        scanner.scan(
          `reply to a caller that leaves ${name}`,
          await new Promise<Buffer>(done => socket.once('data', done)),
          new Set(['prompt']),
        )
      socket.resetAndDestroy()
    }
  })

  await t.test('a database that fails', async t => {
    const everything = (): Ask[] =>
      [
        ...[
          '/keys',
          '/byok',
          '/workspaces',
          '/end-users',
          '/credits',
          '/activity',
          '/generation?id=gen-1',
        ].map(path => manage('GET', path)),
        manage('GET', `/keys/${'f'.repeat(64)}`),
        manage('GET', '/byok/12345678-1234-1234-1234-123456789abc'),
        manage('POST', '/byok', { provider: 'groq', key: secrets.ownKey }),
        manage('POST', '/keys', { name: 'never made' }),
        manage('POST', '/workspaces', { name: 'x', slug: 'x-x' }),
        manage('POST', '/credits', { amount: 1 }),
        manage('POST', '/end-users', { user: `${secrets.endUser}2` }),
        manage('DELETE', `/end-users/${encodeURIComponent(secrets.endUser)}`),
        respond('with a known key', { model: 'shared/openai-chat' }),
        respond('with a BYOK key', { model: 'own/openai-chat' }),
        { ...manage('GET', '/models'), key: secrets.strangeKey },
      ].map(ask => ({ ...ask, name: `${ask.name} while the store throws` }))
    const before = client.statuses.get(500) ?? 0
    writeFileSync(join(folder, 'store-fails'), '')
    await client.sendAll(running.url, everything())
    unlinkSync(join(folder, 'store-fails'))
    t.ok((client.statuses.get(500) ?? 0) > before + 5, 'handlers threw what they did not foresee')
  })

  await t.test('a serve thread that dies', async t => {
    client.paths.add('a serve thread dies')
    writeFileSync(join(folder, 'thread-fails'), '')
    const log = () =>
      gateway.output
        .filter(({ where }) => where === 'stdout of gateway')
        .map(({ text }) => text())
        .join('')
    await until('the thread is restarted', () => log().includes('serve thread died'), log)
    // Asked at the admin port: who calls a port that nobody listens on may come to sit on it.
    let told = ''
    const isReady = async (): Promise<boolean> => {
      const reply = await fetch(`${running.adminUrl}/readyz`)
      told = await reply.text()
      return reply.ok
    }
    await until('another one listens', isReady, () => `${log()}${told}`)
    t.equal((await client.send(running.url, manage('GET', '/models'))).status, 200)
  })
  await scanAdmin(running, 'after all that')
  scanFiles('while it runs')

  await t.test('kills, restarts and a stop in order', async t => {
    client.paths.add('kill -9')
    await client.sendAll(
      running.url,
      FORMATS.map(format => respond(`${format} before the kill`, { model: `own/${format}` })),
    )
    await running.end('SIGKILL')
    scanFiles('after a kill')
    running = await gateway.start('patient.json')
    const told = await client.send(running.url, respond('after the kill', { model: 'own/openai-chat' }))
    t.equal(told.status, 200, told.text)
    await scanAdmin(running, 'after a restart')
    t.equal(await running.end('SIGTERM'), 0)
    scanFiles('after a stop in order')
  })

  await t.test('the command line', async t => {
    const config = ['--config', 'gateway.json']
    const expected: readonly (readonly [readonly string[], number, Record<string, string>?])[] = [
      [['keys', 'list', ...config], 0],
      [['vault', 'status', ...config], 0],
      [['vault', 'rotate', ...config], 0],
      [['check', ...config], 0],
      [['keys', 'create', ...config], 2],
      [['vault', 'status', ...config], 2, { GATEWAY_VAULT_KEYS: `${secrets.vaultKeys},again` }],
      [
        ['vault', 'rotate', ...config],
        2,
        { GATEWAY_VAULT_KEYS: `other:${Buffer.alloc(32, 7).toString('base64')}` },
      ],
    ]
    for (const [words, code, environment] of expected) {
      client.paths.add(`sluice ${words.slice(0, 2).join(' ')} ${code} ${Object.keys(environment ?? {})}`)
      const ended = await gateway.run('cli', words, environment)
      t.equal(ended.code, code, `sluice ${words[0]} ${words[1]}: ${ended.stderr}`)
    }
  })

  await t.test('what cannot be used is refused', async t => {
    for (const [name, code] of await unusable) t.equal(code, 2, name)
  })

  await t.test('a key file of its own', async t => {
    const config = { storage: { url: 'sqlite:./data/own/gateway.db' } }
    writeFileSync(join(folder, 'own.json'), JSON.stringify(config))
    const ended = await gateway.run('cli', ['vault', 'status', '--config', 'own.json'], {
      GATEWAY_VAULT_KEYS: '',
    })
    t.equal(ended.code, 0, ended.stderr)
    t.equal(statSync(join(folder, 'data/own/vault.key')).mode & 0o777, 0o600)
    const [, text = ''] = gateway.read('data/own/vault.key').toString().trim().split(':')
    scanner.add({ name: 'key of the key file', text, bytes: Buffer.from(text, 'base64') })
  })

  for (const { where, text } of gateway.output) scanner.scan(where, text())
  const left = gateway
    .files()
    .filter(name => !/^(data|broken)\/|^(gateway|patient|own)\.json$|^corrupt\.db/.test(name))
  t.strictSame(left, [], 'and it leaves no other files')
  for (const [name, content] of gateway.contents('data/own/')) {
    if (!name.endsWith('vault.key')) scanner.scan(name, content)
  }

  t.comment(
    `${client.paths.size} paths, ${client.replies} replies, ${client.failures} of them failures, ${scanner.bytes} bytes looked through, ${scanner.hits.length} occurrences`,
  )
  t.comment(
    `statuses: ${[...client.statuses]
      .sort()
      .map(([status, count]) => `${status}: ${count}`)
      .join(', ')}`,
  )
  t.ok(client.paths.size >= 400)
  t.ok(client.failures >= 400)
  const found = new Set(
    scanner.hits.map(hit => `${hit.canary} as ${hit.encoding} in ${hit.where}: ${hit.around}`),
  )
  t.strictSame([...found].slice(0, SHOWN), [])
})
