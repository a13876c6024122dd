import t from 'tap'
import { loadConfig } from '../../../src/process/config/config.ts'
import { withoutSecrets } from '../../../src/process/config/without-secrets.ts'

t.test('settings are shown without secrets, and addresses without what may be one', async t => {
  const S = 's3cret-canary'
  const shown = withoutSecrets({
    storage: { url: `postgres://sluice:${S}@db:5432/sluice` },
    redis: { url: `redis://:${S}@cache:6379/2` },
    broken: { url: `postgres://a:1/${S}@host/db` },
    numeric: [
      'postgres://sluice:4711/0815@db/sluice',
      'redis://:4711?0815@cache',
      'redis://u:4711#0815@cache',
    ],
    providers: [{ slug: 'acme', apiKey: S, headers: { 'x-team': S }, proxy: `http://u:${S}@proxy:3128` }],
    alerts: [{ url: `https://hooks.example/${S}`, secretFile: './hook.secret' }],
    providerKeys: { openai: S },
    tools: { files: { url: 's3://bucket/prefix', secretAccessKey: S }, mail: `me:${S}@host` },
    limits: { openPerKey: 5_000, maxInFlight: 7 },
  })
  t.notMatch(JSON.stringify(shown), S)
  t.notMatch(JSON.stringify(shown), /4711|0815/)
  t.match(shown, {
    storage: { url: 'postgres://db:5432/…' },
    providers: [{ slug: 'acme', apiKey: '(set)', proxy: 'http://proxy:3128/…' }],
    alerts: [{ url: 'https://hooks.example/…', secretFile: './hook.secret' }],
    limits: { openPerKey: 5_000, maxInFlight: 7 },
  })
  t.match(withoutSecrets(loadConfig([], {})), { listen: { port: 8080 }, logLevel: 'info' })
})
