import { chmodSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { findConfig } from '../../../src/process/config/config.ts'
import type { Environment } from '../../../src/process/config/environment.ts'
import { checkStart } from '../../../src/process/start/start-failure.ts'
import { startWarnings } from '../../../src/process/start/start-warnings.ts'
import { tempFolder } from '../../support/temp-folder.ts'

function warnings(t: Test, settings: unknown, environment: Environment = {}): readonly string[] {
  const folder = t.testdir({ 'gateway.yaml': JSON.stringify(settings) })
  const found = findConfig(['--config', `${folder}/gateway.yaml`], environment)
  return startWarnings(checkStart(found, { readKeyFile: false }))
}

const model = (provider: string, pricing: object | undefined = {}) => ({
  id: `${provider}/a`,
  endpoints: [{ provider, ...(pricing === undefined ? {} : { pricing }) }],
})

t.test('a provider of the catalogue without a key is told, with the ways to give it one', async t => {
  const models = [model('openai'), model('acme'), model('ollama')]
  const acme = { slug: 'acme', format: 'openai-chat', baseUrl: 'https://acme.test', auth: 'bearer' }
  t.same(warnings(t, { providers: [acme], models }), [
    'providers (openai).apiKey: is missing, so openai serves only callers with their own credentials; set it or OPENAI_API_KEY',
    'providers[0].apiKey: is missing, so acme serves only callers with their own credentials; set it',
  ])
  const withKeys = { providers: [{ ...acme, apiKey: 'k' }], models }
  t.same(warnings(t, withKeys, { OPENAI_API_KEY: 'k' }), [])
  t.same(warnings(t, { models: [] }), [], 'built-in providers without models do not count')
})

t.test('one address cannot be that of both ports', t => {
  t.throws(() => warnings(t, { listen: { port: 9090 } }), {
    message: 'admin.port: is the same as listen.port; set one of them, or GATEWAY_PORT or GATEWAY_ADMIN_PORT',
  })
  t.same(warnings(t, { listen: { port: 0 }, admin: { port: 0 } }), [])
  t.end()
})

t.test('a key that does not say where its provider is, is told with the ways out', async t => {
  const models = [model('azure'), model('cloudflare'), model('amazon-bedrock'), model('claude-on-aws')]
  const rows = (more: object = {}) =>
    models.map(({ endpoints }) => ({ slug: endpoints[0]?.provider, apiKey: 'a-plain-key', ...more }))
  t.same(warnings(t, { providers: rows(), models }), [
    'providers[0].apiKey: does not contain the host that the address of azure needs; give the key as JSON, or set baseUrl to the whole address',
    'providers[1].apiKey: does not contain the account that the address of cloudflare needs; give the key as JSON, or set baseUrl to the whole address',
    'providers[3].apiKey: does not contain the region that the address of claude-on-aws needs; set region, or give the key as JSON',
  ])
  t.same(warnings(t, { providers: rows({ baseUrl: 'https://mine.example/v1' }), models }), [])
  const account = { slug: 'cloudflare', apiKey: JSON.stringify({ api_key: 'k', account_id: 'a' }) }
  t.same(warnings(t, { providers: [account], models: [model('cloudflare')] }), [])
  t.same(warnings(t, { models: [model('azure')] }, { AZURE_API_KEY: '{' }), [
    'providers (azure).apiKey: must be valid JSON',
  ])
})

t.test('a key of the file that its provider cannot have is a fault', async t => {
  const fault = (row: object) => {
    try {
      warnings(t, { providers: [row], models: [] })
    } catch (error) {
      return String(error)
    }
    return 'none'
  }
  t.match(
    fault({ slug: 'azure', apiKey: '[{"api_key":"s3cr3t"}]' }),
    /providers\[0\]\.apiKey: \[0\]\.resource_type is required/,
  )
  t.match(fault({ slug: 'openai', apiKey: 'two words' }), /providers\[0\]\.apiKey: must be an API key of/)
  t.match(
    fault({ slug: 'krea', apiKey: 'k' }),
    /providers\[0\]\.format: is required: .* since its public API only generates images/,
  )
})

t.test('a local server on the port of the gateway is told', async t => {
  const settings = { models: [model('llamacpp')] }
  t.match(warnings(t, settings), [/^providers \(llamacpp\)\.baseUrl: port 8080 is the port of this gateway/])
  t.same(warnings(t, settings, { GATEWAY_PORT: '8081' }), [])
})

const unencrypted = (t: Test, providers: readonly object[]): readonly (string | undefined)[] =>
  warnings(t, { providers, models: [], catalogue: { discover: false } }).map(line => line.split(':', 1)[0])

t.test('a provider on another machine without TLS is told by its field', async t => {
  const own = (baseUrl: string, at: number) => ({ slug: `own-${at}`, format: 'openai-chat', baseUrl })
  const addresses = ['https://api.example/v1', 'http://api.example/v1', 'http://10.0.0.7:8000/v1']
  t.same(unencrypted(t, addresses.map(own)), ['providers[1].baseUrl', 'providers[2].baseUrl'])
  const here = [
    'http://127.0.0.1:9/v1',
    'http://localhost/v1',
    'http://x.localhost:1/v1',
    'http://[::1]:2/v1',
  ]
  t.same(unencrypted(t, [...here.map(own), { slug: 'openai' }]), [])
  t.same(unencrypted(t, ['http://127.0.0.1.example/v1'].map(own)), ['providers[0].baseUrl'])
})

t.test('a proxy that gets a password without TLS is told too', async t => {
  const by = (proxy: string, at: number) => ({
    slug: `own-${at}`,
    format: 'openai-chat',
    baseUrl: 'https://api.example/v1',
    proxy,
  })
  const proxies = ['http://u:p@proxy:3128', 'u:p@proxy:3128', 'https://u:p@proxy', 'http://proxy', 'none']
  t.same(unencrypted(t, proxies.map(by)), ['providers[0].proxy', 'providers[1].proxy'])
  t.same(unencrypted(t, ['http://u:p@127.0.0.1:3128'].map(by)), [])
})

t.test('models without a price are told in one line, unless something else tells it', async t => {
  const bare = (id: string) => ({ id, endpoints: [{ provider: 'ollama' }] })
  const settings = { models: [model('ollama'), bare('ollama/b'), bare('ollama/*')] }
  t.match(warnings(t, settings), [
    /^models\[1\]\.endpoints: the prices of 2 models are not known, so requests cost nothing, and callers with a limit/,
  ])
  t.same(warnings(t, { ...settings, catalogue: { discover: true } }), [])
  const file = `${t.testdirName}-models.json`
  writeFileSync(
    file,
    JSON.stringify({ data: [{ id: 'ollama/b', pricing: { prompt: '0', completion: '0' } }] }),
  )
  t.teardown(() => rmSync(file))
  t.same(warnings(t, { models: [bare('ollama/b')], catalogue: { import: file } }), [])
  writeFileSync(file, JSON.stringify({ data: [{ id: 'nobody/b' }] }))
  t.match(warnings(t, { models: [], catalogue: { import: file } }), [
    /^catalogue\.import: 1 models, such as nobody\/b, have no provider here and are not offered/,
  ])
})

t.test('a provider that would be asked for its models, but has no key, is told', async t => {
  t.match(warnings(t, { providers: [{ slug: 'openai' }] }), [
    /^providers\[0\]\.apiKey: is missing, so openai serves only callers/,
  ])
  t.same(warnings(t, { providers: [{ slug: 'openai' }] }, { OPENAI_API_KEY: 'k' }), [])
})

t.test('the secret of the sign-in has to be there, and for nobody else', async t => {
  const clientSecretFile = join(tempFolder(), 'oidc.secret')
  const oidc = { issuer: 'https://login.test', clientId: 'a', clientSecretFile, roles: { admins: 'admin' } }
  const told = () => {
    try {
      return warnings(t, { models: [], console: { publicUrl: 'https://sluice.test', oidc } })
    } catch (error) {
      return String(error)
    }
  }
  t.match(told(), /console\.oidc\.clientSecretFile: cannot be read \(ENOENT\)$/)
  writeFileSync(clientSecretFile, '\n', { mode: 0o600 })
  t.match(told(), /console\.oidc\.clientSecretFile: the file is empty$/)
  writeFileSync(clientSecretFile, 'secret-4711\n')
  t.same(told(), [])
  chmodSync(clientSecretFile, 0o644)
  t.match(told(), [
    /^console\.oidc\.clientSecretFile: every user of this machine can read the file; .*chmod o-r/,
  ])
})
