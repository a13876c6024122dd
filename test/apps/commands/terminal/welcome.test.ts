/** What a person is told at the start: names, never secrets, and a request that works as pasted. */
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import {
  banner,
  firstKeysPath,
  firstKeysText,
  writeFirstKeys,
} from '../../../../src/apps/commands/terminal/welcome.ts'
import { loadConfig } from '../../../../src/process/config/config.ts'
import { createCatalog } from '../../../../src/providers/catalog.ts'

const url = 'http://127.0.0.1:8080'
const KEYS = { managementKey: 'sk-gw-mgmt-1', apiKey: 'sk-gw-v1-1' }
const model = (id: string, provider: string, more = {}) => ({ id, endpoints: [{ provider }], ...more })

const modelTold = (catalog: ReturnType<typeof createCatalog>) =>
  /"model":"([^"]*)"/.exec(firstKeysText(KEYS, { catalog, url }))?.[1]

t.test('the request names a model that is there and can be asked', async t => {
  const providers = [{ slug: 'openai', apiKey: 'k' }]
  const pictures = model('openai/draws', 'openai', { outputModalities: ['image'] })
  const models = [pictures, model('xai/b', 'xai'), model('openai/c', 'openai')]
  t.equal(modelTold(createCatalog({ providers, models })), 'openai/c')
  t.equal(
    modelTold(createCatalog({ providers: [], models: [model('xai/b', 'xai')] })),
    'xai/b',
    'without a key',
  )
  t.equal(modelTold(createCatalog({ providers, models: [pictures] })), 'openai/draws')
  t.equal(modelTold(createCatalog({ providers, models: [] })), undefined)
})

t.test('first keys come with the variables of the docs, as a line to paste', async t => {
  const text = firstKeysText(KEYS, { catalog: createCatalog({ providers: [], models: [] }), url })
  t.match(text, '\n  export URL=http://127.0.0.1:8080 KEY=sk-gw-v1-1 MANAGEMENT_KEY=sk-gw-mgmt-1\n')
  t.equal(text.match(/export/g)?.length, 1, 'one line, which a program finds')
})

t.test('the banner tells where things are, and no password', async t => {
  const started = (storageUrl: string) => ({
    version: '1.2.3',
    config: { ...loadConfig([], {}), storage: { url: storageUrl } },
    file: 'gateway.yaml',
    catalog: createCatalog({ providers: [], models: [model('xai/b', 'xai'), model('openai/c', 'openai')] }),
    url,
    adminUrl: 'http://127.0.0.1:9090',
  })
  const text = banner(started('postgres://somebody:pass-word@db.test:5432/gateway'))
  for (const part of [
    'Sluice 1.2.3',
    'gateway.yaml',
    'PostgreSQL at db.test:5432/gateway',
    '2 of 2 providers',
    `${url}/v1`,
  ])
    t.match(text, part)
  t.notMatch(text, /pass-word|somebody/)
  t.match(
    banner({ ...started('sqlite:/x/g.db'), file: null }),
    /configuration +none.*\n +storage +\/x\/g\.db/,
  )
})

t.test('first keys go to a file for their owner alone, in place of an older one', async t => {
  const folder = t.testdir({})
  const path = firstKeysPath({ storage: { url: `sqlite:${join(folder, 'data/g.db')}` } })
  t.equal(path, join(folder, 'data/first-keys'))
  t.equal(firstKeysPath({ storage: { url: 'postgres://h/d' } }), join(process.cwd(), 'data/first-keys'))
  writeFirstKeys(path, 'one')
  t.equal(statSync(path).mode & 0o777, 0o600)
  t.equal(statSync(join(folder, 'data')).mode & 0o777, 0o700)
  writeFileSync(path, 'older', { mode: 0o666 })
  writeFirstKeys(path, 'two')
  t.equal(readFileSync(path, 'utf8'), 'two')
  t.equal(statSync(path).mode & 0o777, 0o600)
})
