import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import t from 'tap'
import { parse } from 'yaml'
import { ConfigError } from '../../../src/base/settings/check.ts'
import { sandboxEngine } from '../../../src/base/settings/setting.ts'
import { findConfig, forgetSecrets, loadConfig } from '../../../src/process/config/config.ts'
import type { Environment } from '../../../src/process/config/environment.ts'
import { SETTINGS, Settings } from '../../../src/process/config/settings.ts'
import { tempFolder } from '../../support/temp-folder.ts'

const folder = tempFolder('sluice-config')
let count = 0

function file(yaml: string): string {
  const path = join(folder, `${count++}.yaml`)
  writeFileSync(path, yaml)
  return path
}

const load = (yaml: string, environment: Environment = {}) =>
  loadConfig(['--config', file(yaml)], environment)

t.test('without file and environment everything has a default', async t => {
  const config = loadConfig([], {})
  t.match(config, {
    listen: { host: '127.0.0.1', port: 8080 },
    admin: { host: '127.0.0.1', port: 9090 },
    storage: { url: 'sqlite:./data/gateway.db' },
    providers: [],
    models: [],
    logLevel: 'info',
    apiKey: null,
  })
  t.ok(Object.isFrozen(config) && Object.isFrozen(config.timeouts))
})

t.test('the environment wins over the file', async t => {
  const config = load('listen: { port: 1111 }\nstorage: { url: "sqlite:./a.db" }', {
    GATEWAY_PORT: '2222',
    DATABASE_URL: 'sqlite:./b.db',
    GATEWAY_SERVE_THREADS: '3',
    LOG_LEVEL: 'debug',
  })
  t.match(config, {
    listen: { port: 2222 },
    storage: { url: 'sqlite:./b.db' },
    threads: { serve: 3 },
    logLevel: 'debug',
  })
})

t.test('a port is shared when the file or the environment says so', async t => {
  const shared = (yaml: string, value: string) => load(yaml, { GATEWAY_SHARED_PORT: value }).listen.shared
  t.equal(shared('', ''), false)
  t.equal(shared('', '1'), true)
  t.equal(shared('listen: { shared: true }', ''), true)
  t.equal(shared('listen: { shared: true }', '0'), false)
})

t.test('the file may be named by the environment, and the flag by an equals sign', async t => {
  const path = file('listen: { port: 4444 }')
  t.equal(loadConfig([], { GATEWAY_CONFIG: path }).listen.port, 4444)
  t.equal(loadConfig([`--config=${path}`], {}).listen.port, 4444)
})

t.test('variables are put in anywhere in a string, and an empty variable counts as unset', async t => {
  const config = load(
    'providers: [{ slug: acme, format: openai-chat, baseUrl: "http://${HOST}:1/v1", apiKey: "${KEY}" }]',
    {
      HOST: 'localhost',
      KEY: 'k-1',
      GATEWAY_PORT: '',
    },
  )
  t.match(config.providers, [{ baseUrl: 'http://localhost:1/v1', apiKey: 'k-1' }])
  t.equal(config.listen.port, 8080)
})

t.test('the documented example loads', async t => {
  const config = load(
    `
listen: { host: 127.0.0.1, port: 8080 }
admin:  { host: 127.0.0.1, port: 9090 }
threads: { serve: 1, tasks: 1 }
storage: { url: "sqlite:./data/gateway.db" }
redis: { url: "redis://127.0.0.1:6379" }
providers:
  - slug: acme
    name: Acme
    format: openai-chat
    baseUrl: http://127.0.0.1:9100/v1
    apiKey: \${ACME_API_KEY}
models:
  - id: acme/fast-1
    name: Fast 1
    contextLength: 128000
    maxOutputTokens: 16384
    inputModalities: [text, image]
    outputModalities: [text]
    endpoints:
      - provider: acme
        upstreamModel: fast-1
        format: openai-chat
        pricing: { prompt: "0.0000005", completion: "0.0000015", inputCacheRead: "0.00000005" }
        region: us
        zdr: true
        quantization: fp8
        supportedParameters: [tools, temperature, response_format]
alignment: { evaluator: { model: acme/judge-1 }, timeoutMs: 5000 }
moderation: { model: acme/judge-1 }
regions: { europe: [eu.localhost], us: [us.localhost] }
timeouts: { upstreamHeadersMs: 60000, upstreamIdleMs: 60000, requestMs: 600000, heartbeatMs: 15000 }
accounting: { onAbort: cancel }
`,
    { ACME_API_KEY: 'secret' },
  )
  t.equal(config.models[0]?.endpoints[0]?.quantization, 'fp8')
  t.same(config.regions, { europe: ['eu.localhost'], us: ['us.localhost'] })
  t.same(config.byok, { feePercent: 0 })
  t.same(config.moderation, { model: 'acme/judge-1' })
})

t.test('rows of search engines need what their kind needs, and the default is one of them', async t => {
  const engines =
    (rows: string, byDefault = '') =>
    () =>
      load(`tools: { webSearch: { engines: [${rows}]${byDefault} } }`, {})
  t.throws(
    engines('{ name: a, kind: exa }'),
    /^tools\.webSearch\.engines\[0\]\.apiKey: is required for this kind$/,
  )
  t.throws(engines('{ name: a, kind: searxng }'), /engines\[0\]\.baseUrl: is required for searxng$/)
  const searx = '{ name: a, kind: searxng, baseUrl: "http://127.0.0.1:8888" }'
  t.throws(engines(`${searx}, ${searx}`), /engines\[1\]\.name: another engine has this name$/)
  t.throws(
    engines(searx, ', default: b'),
    /^tools\.webSearch\.default: no engine in tools\.webSearch\.engines has this name$/,
  )
  t.throws(engines(`{ name: a, kind: bing, apiKey: x }`), /engines\[0\]\.kind/)
  t.match(engines(searx, ', default: a')().tools.webSearch, { default: 'a', timeoutMs: 30_000 })
})

t.test('the sandbox chooses its engine, and refuses what is none here', async t => {
  const { sandbox } = loadConfig([], {}).tools
  t.equal(sandbox.engine, 'auto')
  t.ok(sandbox.timeoutMs < 30_000)
  t.equal(sandboxEngine.accepts('embedded'), existsSync('/proc/self/statm'))
  t.equal(sandboxEngine.accepts('none'), true)
  t.throws(() => load('tools: { sandbox: { engine: pyodide } }', {}), /tools\.sandbox\.engine/)
  t.throws(() => load('tools: { sandbox: { network: full } }', {}), /tools\.sandbox\.network/)
})

t.test('the examples of the documentation load, and the long one shows every setting', async t => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/configuration.md'), 'utf8')
  const examples = [...page.matchAll(/```yaml\n(.*?)```/gs)].map(([, yaml = '']) => yaml)
  const [short = '', yaml = ''] = examples
  t.equal(load(short, { OPENAI_API_KEY: 'secret' }).models.length, 1)
  const config = load(yaml, { ACME_API_KEY: 'secret' })
  t.equal(config.models[0]?.endpoints[0]?.provider, 'acme')
  const file = parse(yaml) as Record<string, unknown>
  for (const { path, notes } of SETTINGS) {
    if (notes.environmentOnly !== true) t.ok(path[0] !== undefined && path[0] in file, `${path[0]} is shown`)
  }
})

t.test('a bucket for files needs credentials, and its address is one', async t => {
  const yaml = (fields: string): string => `tools: { files: { ${fields} } }`
  const keys = 'accessKeyId: a, secretAccessKey: b'
  const { tools } = load(yaml(`url: "s3://bucket/a/b", endpoint: "http://127.0.0.1:9000", ${keys}`), {})
  t.match(tools.files, { url: 's3://bucket/a/b', region: 'us-east-1', accessKeyId: 'a', maxFiles: 10_000 })
  t.equal(load(yaml('url: "file:/var/files"'), {}).tools.files.url, 'file:/var/files')
  for (const [fields, fault] of [
    ['url: "s3://bucket"', /tools\.files\.accessKeyId: is required with s3:/],
    ['url: "s3://bucket", accessKeyId: a', /tools\.files\.secretAccessKey: is required/],
    [`url: "s3://b/../x y", ${keys}`, /tools\.files\.url: expected/],
    ['url: "ftp://x"', /tools\.files\.url: expected/],
    ['url: "file:"', /tools\.files\.url: expected/],
    [`url: "s3://bucket", endpoint: "http://user:pass@h", ${keys}`, /tools\.files\.endpoint: expected/],
    ['region: "EU West"', /tools\.files\.region: /],
    ['maxFileBytes: 1', /tools\.files\.maxFileBytes: /],
  ] as const)
    t.throws(() => load(yaml(fields), {}), { message: fault }, fields)
  t.end()
})

t.test('the sign-in to the console needs an address that nobody can listen to, and roles', async t => {
  const oidc = {
    issuer: 'https://login.example.com/realms/company',
    clientId: 'sluice',
    clientSecretFile: './oidc.secret',
    roles: { 'sluice-admins': 'admin' },
  }
  const publicUrl = 'https://sluice.example.com'
  const of = (settings: object) => load(JSON.stringify({ console: settings })).console
  t.same(of({ publicUrl, oidc }), { enabled: true, publicUrl, oidc: { ...oidc, roleClaim: 'roles' } })
  t.equal(of({}).oidc, null)
  for (const url of ['http://localhost:9090', 'http://127.0.0.1:9090/', 'http://[::1]:9090', 'https://a.b'])
    t.equal(of({ publicUrl: url, oidc }).publicUrl, url)
  const without = (name: string) => Object.fromEntries(Object.entries(oidc).filter(([each]) => each !== name))
  for (const [settings, fault] of [
    [{ oidc }, /^console\.publicUrl: is required with console\.oidc$/],
    [{ publicUrl: 'http://sluice.example.com', oidc }, /^console\.publicUrl: expected https:/],
    [{ publicUrl: 'http://localhost.example.com' }, /^console\.publicUrl: expected/],
    [{ publicUrl: 'http://127.0.0.1.example.com' }, /^console\.publicUrl: expected/],
    [{ publicUrl: 'https://sluice.example.com/console' }, /^console\.publicUrl: expected .* without a path$/],
    [{ publicUrl: 'https://user:pass@sluice.example.com' }, /^console\.publicUrl: expected/],
    [{ publicUrl: 'javascript:alert(1)' }, /^console\.publicUrl: expected/],
    [{ publicUrl: 'sluice.example.com' }, /^console\.publicUrl: expected/],
    [
      { publicUrl, oidc: { ...oidc, issuer: 'http://login.example.com' } },
      /^console\.oidc\.issuer: expected/,
    ],
    [{ publicUrl, oidc: { ...oidc, issuer: 'https://login.example.com/?a=b' } }, /^console\.oidc\.issuer: /],
    [{ publicUrl, oidc: { ...oidc, roles: {} } }, /^console\.oidc\.roles: expected at least one$/],
    [
      { publicUrl, oidc: { ...oidc, roles: { all: 'owner' } } },
      /^console\.oidc\.roles\.all: expected one of viewer, operator, admin$/,
    ],
    [{ publicUrl, oidc: { ...oidc, clientSecret: 'x' } }, /^console\.oidc\.clientSecret: unknown setting/],
    ...['issuer', 'clientId', 'clientSecretFile', 'roles'].map(
      name =>
        [{ publicUrl, oidc: without(name) }, new RegExp(`^console\\.oidc\\.${name}: is required$`)] as const,
    ),
  ] as const)
    t.throws(() => of(settings), { message: fault }, JSON.stringify(settings))
})

t.test('every default fits its own schema', async t => {
  const config = loadConfig([], {})
  t.same([...Value.Errors(Settings, structuredClone(config))], [])
})

t.test('every setting that takes a variable is set by it', async t => {
  for (const { path, schema, notes } of SETTINGS) {
    if (notes.env === undefined) continue
    const [text, value] =
      notes.env === 'REDIS_URL'
        ? ['redis://h:1', 'redis://h:1']
        : notes.env === 'DATABASE_URL'
          ? ['sqlite:a.db', 'sqlite:a.db']
          : notes.env === 'LOG_LEVEL'
            ? ['warn', 'warn']
            : notes.env === 'GATEWAY_FRONT'
              ? ['node', 'node']
              : schema['type'] === 'integer'
                ? ['7', 7]
                : schema['type'] === 'boolean'
                  ? ['1', true]
                  : ['text', 'text']
    const config: unknown = loadConfig([], { [notes.env]: text })
    t.equal(
      path.reduce<unknown>((group, name) => Reflect.get(Object(group), name), config),
      value,
      notes.env,
    )
  }
})

t.test('secrets may stand in files', async t => {
  const secret = (text: string) => file(text)
  const config = loadConfig([], {
    GATEWAY_VAULT_KEYS_FILE: secret('k1:abc\n'),
    GATEWAY_MANAGEMENT_KEY_FILE: secret('sk-gw-mgmt-1\n'),
    GATEWAY_API_KEY_FILE: secret('sk-gw-v1-1'),
    DATABASE_URL_FILE: secret('postgres://u:p@h/d\n'),
    REDIS_URL_FILE: secret('redis://h:1\r\n'),
  })
  t.match(config, {
    vaultKeys: 'k1:abc',
    managementKey: 'sk-gw-mgmt-1',
    apiKey: 'sk-gw-v1-1',
    storage: { url: 'postgres://u:p@h/d' },
    redis: { url: 'redis://h:1' },
  })
})

t.test('a secret in a file that cannot be used names its variable and repeats nothing', async t => {
  const cases: readonly (readonly [Environment, RegExp])[] = [
    [
      { GATEWAY_API_KEY: 'a-canary', GATEWAY_API_KEY_FILE: file('a-canary') },
      /^GATEWAY_API_KEY and GATEWAY_API_KEY_FILE: only one of them may be set$/,
    ],
    [{ DATABASE_URL_FILE: '/nowhere/a-canary' }, /^DATABASE_URL_FILE: cannot be read \(ENOENT\)$/],
    [{ GATEWAY_VAULT_KEYS_FILE: file(' \n') }, /^GATEWAY_VAULT_KEYS_FILE: the file is empty$/],
    [{ REDIS_URL_FILE: file('redis://a-canary:x') }, /^REDIS_URL_FILE: expected a URL of the form redis:/],
  ]
  for (const [environment, message] of cases) {
    const error = t.throws(() => loadConfig([], environment), ConfigError) as Error
    t.match(error.message, message)
    t.notMatch(error.message, 'a-canary')
  }
  t.equal(loadConfig([], { GATEWAY_PORT_FILE: file('1'), GATEWAY_API_KEY_FILE: '' }).apiKey, null)
})

t.test('the ids of models are vendor and name, with variants', async t => {
  for (const id of ['a/b', '~a/b', 'Acme/org/Model.v1:free', 'a/b:c:d']) {
    t.equal(load(`models: [{ id: "${id}", endpoints: [{ provider: x }] }]`).models[0]?.id, id)
  }
})

const BAD: readonly { readonly yaml: string; readonly says: string; readonly environment?: Environment }[] = [
  { yaml: 'lisen: {}', says: 'lisen: unknown setting' },
  { yaml: 'logLevel: debug', says: 'logLevel: unknown setting' },
  { yaml: 'apiKey: a', says: 'apiKey: unknown setting' },
  { yaml: 'storage: {}', says: 'storage.url: is required' },
  { yaml: 'accounting: {}', says: 'accounting.onAbort: is required' },
  { yaml: 'moderation: null', says: 'moderation: expected a group of settings' },
  { yaml: 'redis: { url: null }', says: 'redis.url: expected a string' },
  { yaml: 'alignment: { evaluator: {} }', says: 'alignment.evaluator.model: is required' },
  { yaml: 'quotas: { requestsPerMinute: 0 }', says: 'quotas.requestsPerMinute: expected null or an integer' },
  { yaml: 'quotas: { tokensPerMinute: "9" }', says: 'quotas.tokensPerMinute: expected null or an integer' },
  { yaml: 'moderation: {}', says: 'moderation.model: is required' },
  { yaml: 'quotas: { nodes: 0 }', says: 'quotas.nodes: ' },
  { yaml: 'credits: { enforced: 1 }', says: 'credits.enforced: ' },
  { yaml: 'credentials: { maxBytes: 1 }', says: 'credentials.maxBytes: ' },
  { yaml: 'redis: { url: "http://127.0.0.1:6379" }', says: 'redis.url: expected a URL of the form redis://' },
  { yaml: 'redis: { url: "redis://127.0.0.1:x" }', says: 'redis.url: expected a URL of the form redis://' },
  { yaml: 'redis: { url: "redis://h:1", prefix: "a b" }', says: 'redis.prefix: ' },
  { yaml: 'redis: {}', says: 'redis.url: is required' },
  { yaml: '', says: 'REDIS_URL: expected a URL', environment: { REDIS_URL: '127.0.0.1:6379' } },
  { yaml: 'listen: { port: 70000 }', says: 'listen.port: ' },
  { yaml: 'listen: { port: "8080" }', says: 'listen.port: ' },
  { yaml: 'listen: { hots: a }', says: 'listen.hots: unknown setting; did you mean host?' },
  { yaml: 'listen: { shared: 1 }', says: 'listen.shared: ' },
  { yaml: 'timeouts: { drainDelayMs: -1 }', says: 'timeouts.drainDelayMs: ' },
  { yaml: 'limits: { maxInFlight: 0 }', says: 'limits.maxInFlight: ' },
  { yaml: 'limits: { maxLagMs: 0.5 }', says: 'limits.maxLagMs: ' },
  { yaml: 'limits: { maxBufferedBytes: 1000 }', says: 'limits.maxBufferedBytes: ' },
  { yaml: 'models: [{ id: acme/a }]', says: 'models[0].endpoints: is required' },
  { yaml: 'models: [{ id: a, endpoints: [{ provider: x }] }]', says: 'models[0].id: ' },
  { yaml: 'models: [{ id: a/b, endpoints: [] }]', says: 'models[0].endpoints: ' },
  {
    yaml: 'models: [{ id: a/b, endpoints: [{ provider: x, pricing: { prompt: 0.1 } }] }]',
    says: 'models[0].endpoints[0].pricing.prompt: ',
  },
  {
    yaml: 'models: [{ id: a/b, endpoints: [{ provider: x, format: soap }] }]',
    says: 'models[0].endpoints[0].format: expected one of openai-responses, ',
  },
  { yaml: 'providers: [{ slug: acme, baseUrl: "ftp://x" }]', says: 'providers[0].baseUrl: ' },
  {
    yaml: 'providers: [{ slug: acme, apiKey: "${NOT_THERE}" }]',
    says: 'providers[0].apiKey: environment variable NOT_THERE is not set',
  },
  {
    yaml: 'providers: [{ slug: acme, apiKey: "${NOT_THERE:-a-default}" }]',
    says: 'providers[0].apiKey: expected the name of an environment variable in ${…}: letters, digits and _, without a default',
  },
  { yaml: 'providers: { slug: acme }', says: 'providers: ' },
  { yaml: 'providers: [{ slug: a, auth: basic }]', says: 'providers[0].auth: expected one of bearer, ' },
  {
    yaml: 'providers: [{ slug: a, quirks: [max-tokens, odd] }]',
    says: 'providers[0].quirks[1]: expected one of max-tokens, ',
  },
  {
    yaml: 'models: [{ id: a/b, endpoints: [{ provider: x, region: mars }] }]',
    says: 'models[0].endpoints[0].region: expected one of europe, us',
  },
  ...['a', '/a', 'a/', 'a b/c', 'a/b c', '"a/b:"', 'a//b'].map(id => ({
    yaml: `models: [{ id: ${id}, endpoints: [{ provider: x }] }]`,
    says: 'models[0].id: expected the form vendor/model',
  })),
  {
    yaml: 'accounting: { onAbort: maybe }',
    says: 'accounting.onAbort: expected one of finish, cancel, drain',
  },
  { yaml: 'timeouts: { requestMs: 0 }', says: 'timeouts.requestMs: ' },
  { yaml: 'byok: { feePercent: 101 }', says: 'byok.feePercent: ' },
  { yaml: 'regions: { europe: ["http://eu"] }', says: 'regions.europe[0]: ' },
  {
    yaml: 'regions: { europe: [a.b], us: [c, A.B] }',
    says: 'regions.us[1]: this host is also in regions.europe',
  },
  { yaml: 'a: [', says: 'invalid YAML' },
  { yaml: '- a', says: '(root): ' },
  { yaml: '', says: 'GATEWAY_PORT: ', environment: { GATEWAY_PORT: 'http' } },
  { yaml: '', says: 'GATEWAY_SERVE_THREADS: ', environment: { GATEWAY_SERVE_THREADS: '0' } },
  { yaml: '', says: 'GATEWAY_SHARED_PORT: ', environment: { GATEWAY_SHARED_PORT: 'yes' } },
  { yaml: '', says: 'LOG_LEVEL: expected one of ', environment: { LOG_LEVEL: 'loud' } },
]

t.test('a bad configuration names the field in one line', async t => {
  for (const { yaml, says, environment } of BAD) {
    try {
      load(yaml, environment)
      t.fail(`accepted: ${yaml}`)
    } catch (error) {
      t.ok(error instanceof ConfigError, yaml)
      const { message } = error as Error
      t.ok(message.includes(says), `${yaml} -> ${message}`)
      t.notMatch(message, '\n')
    }
  }
})

t.test('a bad configuration has one line for each fault', async t => {
  const yaml = `
listen: { port: none, host: "\${NOT_THERE}", prot: 1 }
admin: 9090
regions: { europe: [eu.test], us: [us.test, EU.test] }
models: [{ id: a/b, endpoints: [{ provider: x, contextLength: long }, {}] }]
moderation: {}
`
  const environment = { LOG_LEVEL: 'loud', GATEWAY_SERVE_THREADS: '0', GATEWAY_ADMIN_HOST: 'here' }
  const error = t.throws(() => load(yaml, environment), ConfigError) as ConfigError
  const fields = error.faults.map(line => line.slice(0, line.indexOf(': ')))
  t.same(fields.toSorted(), [
    'GATEWAY_SERVE_THREADS',
    'LOG_LEVEL',
    'admin',
    'listen.host',
    'listen.port',
    'listen.prot',
    'models[0].endpoints[0].contextLength',
    'models[0].endpoints[1].provider',
    'moderation.model',
    'regions.us[1]',
  ])
  t.equal(error.message, error.faults.join('\n'))
})

t.test('a file that cannot be read does not hide faults of the environment', async t => {
  for (const words of [['--config', '/nowhere/x.yaml'], ['--config']]) {
    const error = t.throws(() => loadConfig(words, { LOG_LEVEL: 'loud' }), ConfigError) as ConfigError
    t.equal(error.faults.length, 2)
    t.match(error.faults[1], /^LOG_LEVEL: /)
  }
})

t.test('a file without groups is refused once', async t => {
  for (const yaml of ['[1, 2]', 'text', '7']) {
    const error = t.throws(() => load(yaml), ConfigError) as ConfigError
    t.equal(error.faults.length, 1, yaml)
    t.match(error.message, /^\(root\): /)
  }
})

t.test('the path of a missing file is in the message', async t => {
  t.throws(
    () => loadConfig(['--config', '/nowhere/x.yaml'], {}),
    /\/nowhere\/x\.yaml: cannot be read \(ENOENT\)/,
  )
  t.throws(() => loadConfig(['--config'], {}), /--config: expects a file/)
  t.throws(
    () => loadConfig(['--confg', 'x'], {}),
    /--confg: unknown argument; the only option is --config FILE/,
  )
  t.throws(() => loadConfig(['--config=a.yaml', 'more'], {}), /more: unknown argument/)
})

t.test('limits, credits and Redis have their own settings, and the environment wins', async t => {
  const config = load(
    `
redis: { url: "redis://a:1", prefix: "p:", silenceMs: 20 }
credits: { enforced: true }
quotas: { requestsPerMinute: 60, tokensPerMinute: null, nodes: 3 }
credentials: { ttlMs: 1000 }
`,
    { REDIS_URL: 'rediss://user:word@b:2/1' },
  )
  t.match(config, {
    redis: { url: 'rediss://user:word@b:2/1', prefix: 'p:', silenceMs: 20 },
    credits: { enforced: true },
    quotas: { requestsPerMinute: 60, tokensPerMinute: null, nodes: 3 },
    credentials: { maxEntries: 1_000, maxBytes: 4_194_304, ttlMs: 1_000 },
  })
  t.match(loadConfig([], {}), { redis: { url: null }, credits: { enforced: false }, quotas: { nodes: 1 } })
})

t.test('a bad URL of Redis is not repeated: it may hold a password', async t => {
  for (const environment of [{ REDIS_URL: 'reddis://u:secret-word@h' }, {}]) {
    const error = t.throws(
      () => load('redis: { url: "redis://u:secret-word@h:port" }', environment),
      ConfigError,
    )
    t.notMatch((error as Error).message, 'secret-word')
  }
})

t.test('no message repeats what may be a key in the wrong place', t => {
  const key = 'A7d9f3b1c5e8a2d4f6b8c0e1d3f5a7b9'
  const files = [
    [`providers: [{ slug: x, apiKey:${key} }]`, 'providers[0].*: unknown setting'],
    [`providers: [{ slug: x, ${key}: 1 }]`, 'providers[0].*: unknown setting'],
    [`${key}: "\${NOT_THERE}"`, '*: environment variable NOT_THERE is not set'],
    [
      `providers:\n  - slug: x\n    apiKey: *${key}\n`,
      'invalid YAML: an alias (*) refers to an anchor (&) that does not exist',
    ],
    [`providers:\n  - slug: x\n    apiKey ${key}\n    name: y\n`, 'invalid YAML: '],
    [`a: "${key}`, 'invalid YAML: line 1, column '],
    [`a: [1]\n]${key}`, 'invalid YAML: line 2, column 1: a character that does not belong here'],
    [`providers:\n  - slug: x\n    apiKey: !${key} 1\n`, ''],
  ] as const
  const warnings: unknown[] = []
  const listen = (warning: Error) => warnings.push(warning.message)
  process.on('warning', listen)
  for (const [yaml, says] of files) {
    let message = ''
    try {
      load(yaml)
    } catch (error) {
      message = (error as Error).message
    }
    t.match(message, says)
    t.notMatch(message, key)
  }
  setImmediate(() => {
    process.off('warning', listen)
    t.strictSame(warnings, [])
    t.end()
  })
})

t.test('links, documents and OCR have their own settings', async t => {
  t.same(load('').files, {
    links: { enabled: true, allowHttp: false, allowPrivate: false, maxBytes: 10_485_760, timeoutMs: 10_000 },
    pdf: { timeoutMs: 5_000 },
    ocr: null,
  })
  const yaml = 'files: { links: { enabled: false, maxBytes: 1 }, ocr: { provider: mistral, model: ocr-1 } }'
  t.match(load(yaml).files, {
    links: { enabled: false, allowPrivate: false, maxBytes: 1 },
    ocr: { provider: 'mistral', model: 'ocr-1', timeoutMs: 120_000 },
  })
  for (const [text, path] of [
    ['files: { links: { allowPrivate: 1 } }', 'files.links.allowPrivate'],
    ['files: { links: { maxBytes: 52428801 } }', 'files.links.maxBytes'],
    ['files: { ocr: { provider: mistral } }', 'files.ocr.model'],
    ['files: { link: {} }', 'files.link'],
  ] as const)
    t.throws(() => load(text), { message: new RegExp(`^${path}: `) }, text)
})

t.test('what was probably meant is named', async t => {
  const cases = [
    ['provider: []', 'provider: unknown setting; did you mean providers?'],
    ['providers: [{ slug: x, api_key: k }]', 'providers[0].api_key: unknown setting; did you mean apiKey?'],
    ['listen: { Port: 1 }', 'listen.Port: unknown setting; did you mean port?'],
    ['completely: 1', 'completely: unknown setting'],
  ] as const
  for (const [yaml, says] of cases) {
    const error = t.throws(() => load(yaml), ConfigError) as ConfigError
    t.same(error.faults, [says])
  }
})

t.test('values of the wrong form are told what is expected, in words', async t => {
  const endpoint = (pricing: string) =>
    `models: [{ id: a/b, endpoints: [{ provider: x, pricing: ${pricing} }] }]`
  const cases = [
    [
      'models: [{ id: gpt-5-mini, endpoints: [{ provider: x }] }]',
      /^models\[0\]\.id: expected the form vendor\/model, such as openai\/gpt-5-mini, or vendor\/\*$/,
    ],
    [
      'models: [{ id: "acme/*-1", endpoints: [{ provider: x }] }]',
      /^models\[0\]\.id: expected at most one star, at the end and after the vendor, such as openai\/\*$/,
    ],
    [
      endpoint('{ prompt: 0.0000005 }'),
      /pricing\.prompt: expected a price in quotes, in US dollars for one token, such as "0\.0000005"$/,
    ],
    [endpoint('{ prompt: "$1" }'), /pricing\.prompt: expected a price in quotes/],
    ['listen: { port: "8080" }', /^listen\.port: expected an integer from 0 to 65535, without quotes$/],
    ['storage: { url: "mysql://x" }', /^storage\.url: expected a URL of the form sqlite:PATH or postgres:/],
  ] as const
  for (const [yaml, says] of cases) {
    const error = t.throws(() => load(yaml), ConfigError) as ConfigError
    t.match(error.message, says)
    t.equal(error.faults.length, 1, yaml)
  }
  t.throws(
    () => loadConfig([], { DATABASE_URL: 'mysql://u:canary@x' }),
    /^DATABASE_URL: expected a URL of the form [^@]*@HOST\/DATABASE$/,
  )
})

t.test('a fault of the YAML is told in words, with its place', async t => {
  const cases = [
    ['a:\n\tb: 1', /line 2, column 1: a tab indents the line; use spaces$/],
    ['listen: { port: 1', /line 1, column \d+: .*a bracket there is not closed$/],
    ['a: 1\na: 2', /line 2, column 1: a setting occurs twice in the same group$/],
    ['a: b: c', /line 1, column \d+: a setting begins inside another one/],
  ] as const
  for (const [yaml, says] of cases) t.throws(() => load(yaml), { message: says }, yaml)
})

t.test('what is left of a faulty file goes on to further checks, with its rows at their places', async t => {
  const yaml = `
foo: 1
listen: { port: x, host: 1.2.3.4 }
providers:
  - { slug: acme, format: soap }
  - { slug: own, format: openai-chat, baseUrl: "http://own.test" }
models:
  - { id: nothing }
  - { id: a/b, endpoints: [{ provider: acme, pricing: { prompt: 1, completion: "2" } }] }
  - { id: a/c, endpoints: [{ provider: openia }], extra: 1 }
`
  const { config, faults } = findConfig(['--config', file(yaml)], {})
  t.throws(() => faults.throwIfAny(), ConfigError)
  t.match(config, {
    listen: { host: '1.2.3.4', port: 8080 },
    providers: [{ slug: 'acme', format: 'openai-chat' }, { slug: 'own' }],
    models: [
      { id: 'faulty/0' },
      { id: 'a/b', endpoints: [{ provider: 'acme', pricing: { completion: '2' } }] },
      { id: 'a/c', endpoints: [{ provider: 'openia' }] },
    ],
  })
  for (const text of [
    '[1]',
    'text',
    'models: 3',
    'providers: [1, null]',
    'models: [{ endpoints: 1 }, [], null]',
  ]) {
    t.ok(findConfig(['--config', file(text)], {}).config, text)
  }
})

t.test('nothing follows from a faulty setting', async t => {
  for (const [yaml, environment] of [
    ['storage: { url: "mysql://x" }', {}],
    ['', { DATABASE_URL: 'mysql://x' }],
  ] as const) {
    const { config } = findConfig(['--config', file(yaml)], environment)
    t.equal(config?.storage.url, 'sqlite:./data/gateway.db')
  }
})

t.test('the key of a provider may be in a file, which has one way to be wrong at a time', async t => {
  const key = file('key-of-acme\n')
  const row = (more: string) =>
    `providers: [{ slug: acme, format: openai-chat, baseUrl: "http://127.0.0.1:1", ${more} }]`
  t.match(load(row(`apiKeyFile: "${key}"`)), { providerKeys: { acme: 'key-of-acme' } })
  for (const [more, fault] of [
    [`apiKeyFile: "${key}", apiKey: k`, 'set either apiKey or apiKeyFile'],
    ['apiKeyFile: "/does/not/exist"', 'cannot be read (ENOENT)'],
    [`apiKeyFile: "${file(' ')}"`, 'the file is empty'],
    [`apiKeyFile: "${file('schlüssel')}"`, 'the file has characters that a key cannot have'],
  ] as const)
    t.throws(() => load(row(more)), { message: `providers[0].apiKeyFile: ${fault}` })
})

t.test('variables of secrets are named, and forgotten by the process', async t => {
  const names = ['GATEWAY_API_KEY', 'ACME_KEY', 'ACME_HOST', 'XAI_API_KEY']
  for (const name of names) process.env[name] = 'value'
  t.teardown(() => {
    for (const name of names) delete process.env[name]
  })
  const row = '{ slug: acme, format: openai-chat, baseUrl: "http://${ACME_HOST}", apiKey: "${ACME_KEY}" }'
  const found = findConfig(['--config', file(`providers: [${row}]`)], process.env)
  t.same(found.secrets.toSorted(), ['ACME_KEY', 'GATEWAY_API_KEY', 'XAI_API_KEY'])
  t.match(found.config, { apiKey: 'value', providerKeys: { xai: 'value' } })
  forgetSecrets(found)
  t.same(
    names.map(name => process.env[name]),
    [undefined, undefined, 'value', undefined],
  )
})

t.test('trusted proxies are addresses and networks', async t => {
  t.same(load('').listen.trustedProxies, [])
  const proxies = ['127.0.0.1', '10.0.0.0/8', '::1', 'fd00::/8']
  t.same(load(`listen: { trustedProxies: ${JSON.stringify(proxies)} }`).listen.trustedProxies, proxies)
  for (const wrong of ['proxy.example', '10.0.0.0/33', '::/129', '10.0.0.0/8/8', '300.1.1.1', '10.0.0.0/'])
    t.throws(
      () => load(`listen: { trustedProxies: ['${wrong}'] }`),
      /^listen\.trustedProxies: expected a list of/,
    )
})

t.test('a large file of JSON is read like any other, and its faults are told', async t => {
  const models = Array.from({ length: 2_500 }, (_, at) => ({
    id: `acme/model-${at}`,
    name: `Model \u00e9 ${at}`,
    endpoints: [{ provider: 'acme', pricing: { prompt: '0.000001', completion: '0.000002' } }],
  }))
  const text = JSON.stringify({ models, timeouts: { requestMs: 5_000 } })
  t.ok(text.length > 262_144)
  const config = load(text)
  t.same(config.models, models)
  t.equal(config.timeouts.requestMs, 5_000)
  t.equal(config.timeouts.drainMs, 30_000, 'with the defaults of the rest')
  t.ok(Object.isFrozen(config.models[7]?.endpoints[0]))
  t.throws(
    () => load(text.replace('"requestMs":5000', '"requestMs":"5000"')),
    /^timeouts\.requestMs: expected/,
  )
  t.throws(() => load(`${text}}`), ConfigError)
})
