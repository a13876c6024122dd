/**
 * Master keys are rotated while requests on own credentials are served: real gateway, real command line, one
 * database. The gateway keeps one opened key at most, so going through the models opens credentials anew.
 */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { createVault } from '../../src/providers/credentials/vault.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { openStore } from '../../src/storage/open.ts'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { someCredential } from '../support/own-keys.ts'
import { CLI, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from '../support/product.ts'

/** Each with a model and a credential of its own. */
const MODELS = 20
/** Of other tenants, so that the rotation takes its time. */
const OTHERS = 1_500
const CLIENTS = 8
/** Served after the rotation, before the test ends. */
const AFTERWARDS = 200

const keyLine = (id: string) => `${id}:${randomBytes(32).toString('base64')}`
const secretOf = (model: number) => `sk-own-key-of-model-${model}-0123456789`

t.test('no request fails while all credentials are wrapped anew', async t => {
  const [k1, k2] = [keyLine('k1'), keyLine('k2')]
  const url = `sqlite:${join(t.testdir({}), 'gateway.db')}`
  const vault = createVault(parseVaultKeys(k1))
  const store = await openStore(url)
  const own = { organizationId: 'org_default', workspaceId: 'ws_default', provider: 'acme', isRequired: true }
  for (let model = 0; model < MODELS; model++)
    await store.credentials.add(
      someCredential(vault, secretOf(model), { ...own, allowedModels: [`acme/m${model}`] }),
    )
  for (let other = 0; other < OTHERS; other++)
    await store.credentials.add(someCredential(vault, `sk-${other}`))

  const wrongKeys: (string | undefined)[] = []
  const provider = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8').on('data', (piece: string) => {
      body += piece
    })
    request.on('end', () => {
      const { model } = JSON.parse(body) as { model: string }
      const key = request.headers.authorization
      if (key !== `Bearer ${secretOf(Number(model.slice(1)))}`) wrongKeys.push(key)
      const content = [{ type: 'output_text', text: 'ok', annotations: [] }]
      const message = { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content }
      const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 }
      response.setHeader('content-type', 'application/json')
      response.end(
        JSON.stringify({
          id: 'resp_1',
          object: 'response',
          model,
          status: 'completed',
          output: [message],
          usage,
        }),
      )
    })
  }).listen(0, '127.0.0.1')
  await once(provider, 'listening')
  t.teardown(() => provider.close())
  const { port } = provider.address() as AddressInfo

  const gateway = await startGatewayProcess(
    t,
    {
      providers: [
        {
          slug: 'acme',
          name: 'Acme',
          format: 'openai-responses',
          baseUrl: `http://127.0.0.1:${port}/v1`,
          apiKey: 'none',
        },
      ],
      models: Array.from({ length: MODELS }, (_, model) => ({
        id: `acme/m${model}`,
        endpoints: [{ provider: 'acme' }],
      })),
      credentials: { maxEntries: 1 },
      limits: NO_SHEDDING,
    },
    { GATEWAY_VAULT_KEYS: `${k2},${k1}`, DATABASE_URL: url },
  )

  const failed: string[] = []
  let served = 0
  let servedUntil = Number.POSITIVE_INFINITY
  const client = async (number: number): Promise<void> => {
    for (let turn = number; served < servedUntil; turn++) {
      const answer = await fetch(`${gateway.url}/v1/responses`, {
        method: 'POST',
        headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: `acme/m${turn % MODELS}`, input: 'hi' }),
      })
      const text = await answer.text()
      if (answer.status === 200) served++
      else failed.push(`${answer.status} ${text}`)
      if (failed.length > 10) return
    }
  }
  const load = Promise.all(Array.from({ length: CLIENTS }, (_, number) => client(number)))
  while (served < AFTERWARDS && failed.length === 0) await new Promise(resolve => setImmediate(resolve))

  const servedBefore = served
  const told = await new Promise<string>((resolve, reject) => {
    const env = { ...PRODUCT_ENVIRONMENT, GATEWAY_VAULT_KEYS: `${k2},${k1}`, DATABASE_URL: url }
    const words = [...PRODUCT_FLAGS, CLI, 'vault', 'rotate']
    execFile(process.execPath, words, { env, cwd: t.testdirName }, (error, stdout, stderr) =>
      error === null ? resolve(stdout) : reject(new Error(stderr)),
    )
  })
  const servedWhile = served - servedBefore
  const openedBefore = await gateway.metric('gateway_credential_cache_misses_total')
  servedUntil = served + AFTERWARDS
  await load
  const opened = (await gateway.metric('gateway_credential_cache_misses_total')) - openedBefore

  t.equal(told, `${MODELS + OTHERS} credentials are now encrypted with k2\n`)
  t.comment(
    `${served} requests, ${servedWhile} of them during the rotation of ${MODELS + OTHERS} credentials`,
  )
  t.same(failed, [])
  t.same(wrongKeys, [], 'the provider saw the right key each time')
  t.ok(servedWhile > 20, 'there was load')
  // One client at least went through every model, and each change of the only kept key opens a credential.
  t.ok(opened >= MODELS, `${opened} credentials were opened as the new key wraps them`)
  t.same([...(await store.credentials.countByKeyId())], [['k2', MODELS + OTHERS]])
  await store.close()
  t.equal(await gateway.stop(), 0)
})
