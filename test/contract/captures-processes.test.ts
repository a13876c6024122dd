/** Captures of real processes: several threads, several nodes, a kill and a restart. */
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { partPath } from '../../src/features/captures/folder.ts'
import { openSealedFile } from '../../src/features/captures/sealed-file.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { openStore } from '../../src/storage/open.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { listening } from '../support/listening.ts'
import { caller } from '../support/management.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { eventually as within } from '../support/stream-probe.ts'
import { tempFolder } from '../support/temp-folder.ts'

const MODEL = 'acme/fast-1'
const VAULT_KEYS = `k1:${randomBytes(32).toString('base64')}`
/** Only a fault takes so long. */
const PATIENCE_MS = 60_000
const eventually = (holds: () => boolean | Promise<boolean>) => within(holds, PATIENCE_MS)

/** A provider that answers with what it was asked. */
async function startProvider(t: Test): Promise<string> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const message = { role: 'assistant', content: Buffer.concat(chunks).toString() }
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(
        JSON.stringify({
          id: 'c',
          object: 'chat.completion',
          model: 'x',
          choices: [{ index: 0, message, finish_reason: 'stop' }],
          usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
        }),
      )
    })
  })
  return (await listening(server, t)).url
}

const settings = (url: string) => ({
  providers: [{ slug: 'acme', format: 'openai-chat', baseUrl: url, apiKey: 'sk-canary-shared-0123456789' }],
  models: [{ id: MODEL, endpoints: [{ provider: 'acme' }] }],
  capture: { enabled: true },
  limits: NO_SHEDDING,
})

/** One request on a connection of its own: any thread may get it. */
async function ask({ url }: GatewayProcess, apiKey: string, input: string): Promise<void> {
  const answer = await fetch(`${url}/v1/responses`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      connection: 'close',
    },
    body: JSON.stringify({ model: MODEL, input }),
  })
  await answer.text()
}

/** All texts of a capture, of all data folders given. */
async function textOf(storageUrl: string, folders: readonly string[], id: string) {
  const store = await openStore(storageUrl)
  let text = ''
  try {
    const organizationId = (await store.captures.list()).find(each => each.id === id)?.organizationId ?? ''
    for (const { name } of await store.captures.parts(id)) {
      for (const folder of folders) {
        if (!readdirSync(folder).includes(id) || !readdirSync(join(folder, id)).includes(`${name}.sealed`))
          continue
        const part = { captureId: id, organizationId, name }
        for await (const piece of openSealedFile(
          partPath(folder, id, name),
          parseVaultKeys(VAULT_KEYS),
          part,
        ))
          if (piece.kind === 'text') text += piece.bytes.toString()
      }
    }
  } finally {
    await store.close()
  }
  return text
}

t.test('all threads capture, and what was written survives a kill; it goes on after the restart', async t => {
  const provider = await startProvider(t)
  const storageUrl = `sqlite:${join(tempFolder(), 'gateway.db')}`
  const folder = join(dirname(storageUrl.slice('sqlite:'.length)), 'captures')
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
  const environment = {
    DATABASE_URL: storageUrl,
    GATEWAY_SERVE_THREADS: '2',
    GATEWAY_MANAGEMENT_KEY: managementKey,
    GATEWAY_API_KEY: apiKey,
    GATEWAY_VAULT_KEYS: VAULT_KEYS,
  }
  const first = await startGatewayProcess(t, settings(provider), environment)
  const manage = caller(`${first.url}/v1`, managementKey)
  const made = await manage('POST', '/captures', { key_hash: hashKey(apiKey), minutes: 30 })
  t.equal(made.status, 201, made.text)
  const id = String(made.data['id'])
  const begunMs = performance.now()
  let missed = 0
  /** So many in a row that one of two threads is not asked by a chance of one in a million. */
  const asked: string[] = []
  while (asked.length < 20) {
    const name = `canary-${randomBytes(6).toString('hex')}`
    const before = Number((await manage('GET', `/captures/${id}`)).data['requests'])
    const early = performance.now() - begunMs < 1_000
    await ask(first, apiKey, name)
    if (early && asked.length === 0) {
      // It may not be known yet.
      if (
        !(await within(
          async () => Number((await manage('GET', `/captures/${id}`)).data['requests']) > before,
          500,
        ))
      ) {
        missed++
        continue
      }
    }
    asked.push(name)
  }
  t.comment(`${missed} requests came before the threads knew of it`)
  t.ok(
    await eventually(
      async () => Number((await manage('GET', `/captures/${id}`)).data['requests']) >= asked.length,
    ),
  )
  // Room is counted first, and then written.
  const isWritten = async () => {
    const soFar = await textOf(storageUrl, [folder], id)
    return asked.every(name => soFar.includes(name))
  }
  t.ok(await eventually(isWritten), 'all are there')
  const text = await textOf(storageUrl, [folder], id)
  t.notOk(text.includes('sk-canary-shared'))
  await first.kill()
  t.equal(await textOf(storageUrl, [folder], id), text, 'nothing of it is lost')

  const second = await startGatewayProcess(t, settings(provider), environment)
  const managed = caller(`${second.url}/v1`, managementKey)
  const owned = caller(`${second.url}/v1`, apiKey)
  t.ok(await eventually(async () => (await owned('GET', '/key')).data['capture'] !== null))
  const afterwards = Number((await managed('GET', `/captures/${id}`)).data['requests'])
  t.ok(
    await eventually(async () => {
      await ask(second, apiKey, 'canary-after-the-restart')
      return Number((await managed('GET', `/captures/${id}`)).data['requests']) > afterwards
    }),
  )
  t.ok(
    await eventually(async () =>
      (await textOf(storageUrl, [folder], id)).includes('canary-after-the-restart'),
    ),
  )
  t.match((await managed('GET', `/captures/${id}`)).data['parts'], [{}, {}], 'a part of each process')
  t.equal((await managed('DELETE', `/captures/${id}`)).status, 200)
  t.notOk(readdirSync(folder).includes(id), 'its files are gone with the answer')
  for (const name of asked) {
    const database = readFileSync(storageUrl.slice('sqlite:'.length))
    if (database.includes(name)) t.fail('content in the database')
    if (second.stdout().includes(name)) t.fail('content in the log')
  }
  t.equal(await second.stop(), 0)
})

t.test(
  'two nodes capture within a second, each in its own folder; deletion reaches both',
  { skip: await withoutPostgres() },
  async t => {
    const provider = await startProvider(t)
    const schema = await postgresSchema(t)
    const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
    const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
    const environment = {
      DATABASE_URL: schema.url,
      GATEWAY_SERVE_THREADS: '1',
      GATEWAY_MANAGEMENT_KEY: managementKey,
      GATEWAY_API_KEY: apiKey,
      GATEWAY_VAULT_KEYS: VAULT_KEYS,
    }
    const [one, two] = await Promise.all([
      startGatewayProcess(t, settings(provider), environment),
      startGatewayProcess(t, settings(provider), environment),
    ])
    const folders = [one, two].map(({ configFile }) => join(dirname(configFile), 'data/captures'))
    const manage = caller(`${one.url}/v1`, managementKey)
    const made = await manage('POST', '/captures', { key_hash: hashKey(apiKey), minutes: 30 })
    const id = String(made.data['id'])
    const begunMs = performance.now()
    const owned = caller(`${two.url}/v1`, apiKey)
    t.ok(await eventually(async () => (await owned('GET', '/key')).data['capture'] !== null))
    t.comment(`the other node knew it after ${Math.round(performance.now() - begunMs)} ms`)
    await ask(one, apiKey, 'canary-at-one')
    await ask(two, apiKey, 'canary-at-two')
    const parts = async () =>
      ((await manage('GET', `/captures/${id}`)).data['parts'] ?? []) as readonly { node: string }[]
    t.ok(await eventually(async () => (await parts()).length === 2))
    t.equal(new Set((await parts()).map(({ node }) => node)).size, 2)
    for (const [at, name] of ['canary-at-one', 'canary-at-two'].entries()) {
      const own = folders.slice(at, at + 1)
      t.ok(await eventually(async () => (await textOf(schema.url, own, id)).includes(name)), name)
    }
    t.equal((await caller(`${two.url}/v1`, managementKey)('DELETE', `/captures/${id}`)).status, 200)
    t.notOk(readdirSync(folders[1] ?? '').includes(id), 'at once')
    t.ok(await eventually(() => !readdirSync(folders[0] ?? '').includes(id)), 'and at the other node')
    t.equal((await owned('GET', '/key')).data['capture'], null)
  },
)
