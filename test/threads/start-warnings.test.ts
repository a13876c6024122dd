import t, { type Test } from 'tap'
import { type Environment, findConfig } from '../../src/config/config.ts'
import { checkStart } from '../../src/threads/start-failure.ts'
import { startWarnings } from '../../src/threads/start-warnings.ts'

function warnings(t: Test, settings: unknown, environment: Environment = {}): readonly string[] {
  const folder = t.testdir({ 'gateway.yaml': JSON.stringify(settings) })
  const found = findConfig(['--config', `${folder}/gateway.yaml`], environment)
  return startWarnings(checkStart(found, { createKeyFile: false }))
}

const model = (provider: string) => ({ id: `${provider}/a`, endpoints: [{ provider }] })

t.test('a provider of the catalogue without a key is told, with the ways to give it one', async t => {
  const models = [model('openai'), model('acme'), model('ollama')]
  const acme = { slug: 'acme', format: 'openai-chat', baseUrl: 'http://acme.test', auth: 'bearer' }
  t.same(warnings(t, { providers: [acme], models }), [
    'providers (openai).apiKey: is missing, and openai serves only callers with credentials of their own; set it or OPENAI_API_KEY',
    'providers[0].apiKey: is missing, and acme serves only callers with credentials of their own; set it',
  ])
  const withKeys = { providers: [{ ...acme, apiKey: 'k' }], models }
  t.same(warnings(t, withKeys, { OPENAI_API_KEY: 'k' }), [])
  t.same(warnings(t, { models: [] }), [], 'built-in providers without models do not count')
})

t.test('a local server on the port of the gateway is told', async t => {
  const settings = { models: [model('llamacpp')] }
  t.match(warnings(t, settings), [/^providers \(llamacpp\)\.baseUrl: port 8080 is that of this gateway/])
  t.same(warnings(t, settings, { GATEWAY_PORT: '8081' }), [])
})
