/** The forms of provider keys, their labels, and that a refusal never repeats a key. */
import { generateKeyPairSync } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../../../src/base/errors.ts'
import { describeNewKey } from '../../../../src/providers/credentials/new-key.ts'
import { azureTargets } from '../../../../src/providers/credentials/parse/azure-key.ts'
import { maskKey, parseProviderKey } from '../../../../src/providers/credentials/parse/provider-key.ts'

const pem = (bits: number) =>
  generateKeyPairSync('rsa', { modulusLength: bits }).privateKey.export({
    type: 'pkcs8',
    format: 'pem',
  }) as string
const RSA = pem(2048)
const WEAK_RSA = pem(1024)
const SLOW_RSA = pem(4160)
const CURVE = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }) as string

/** Stands in every key that is refused, in the place of its secret. */
const CANARY = 'canary0secret'
const AWS = {
  accessKeyId: 'AKIAIOSFODNN7EXAMPLE',
  secretAccessKey: `${CANARY}/wJalrXUtnFEMI+K7MDENGbPxRf`,
  region: 'us-east-1',
}
const RESOURCE = {
  api_key: `${CANARY}-azure-0123456789`,
  resource_name: 'my-resource',
  resource_type: 'openai',
}
const DEPLOYMENT = {
  model_slug: 'openai/gpt-x',
  endpoint_url: 'https://my-resource.openai.azure.com/openai/deployments/gpt-x?api-version=2026-01-01',
  api_key: `${CANARY}-deployment-9876`,
  model_id: 'gpt-x',
}
const ACCOUNT = {
  type: 'service_account',
  project_id: 'my-project-1',
  private_key_id: '0123456789abcdef0123456789abcdef01234567',
  private_key: RSA,
  client_email: 'gateway@my-project-1.iam.gserviceaccount.com',
  client_id: '123',
  auth_uri: 'https://accounts.google.com/o/oauth2/auth',
  token_uri: 'https://oauth2.googleapis.com/token',
  universe_domain: 'googleapis.com',
}
const json = (value: unknown) => JSON.stringify(value)
const without = (fields: object, name: string) =>
  json(Object.fromEntries(Object.entries(fields).filter(([key]) => key !== name)))
const at = (endpoint_url: string) => json([{ ...DEPLOYMENT, endpoint_url }])

/** Provider, key, and what is read of it. */
const ACCEPTED: readonly (readonly [string, string, object])[] = [
  ['anthropic', 'sk-ant-api03-x', { kind: 'plain', apiKey: 'sk-ant-api03-x', region: null }],
  ['groq', 'x', { kind: 'plain', apiKey: 'x', secrets: ['x'] }],
  ['my-own-provider', 'a{b}[c]"~!', { kind: 'plain', apiKey: 'a{b}[c]"~!' }],
  ['mistral', 'k'.repeat(4096), { kind: 'plain' }],
  ['openai', 'sk-proj-1', { kind: 'plain', apiKey: 'sk-proj-1', region: null }],
  ['openai', json({ api_key: 'sk-proj-1' }), { kind: 'plain', apiKey: 'sk-proj-1', region: null }],
  ['openai', json({ api_key: 'sk-1', region: null }), { region: null }],
  ['openai', json({ api_key: 'sk-1', region: 'us' }), { apiKey: 'sk-1', region: 'us', secrets: ['sk-1'] }],
  ['openai', json({ region: 'europe', api_key: 'sk-1' }), { apiKey: 'sk-1', region: 'europe' }],
  ['fireworks', ` ${json({ api_key: 'fw_1', region: 'global' })}\n`, { apiKey: 'fw_1', region: 'global' }],
  ['fireworks', 'fw_1', { apiKey: 'fw_1', region: null }],
  ['amazon-bedrock', 'ABSKQmVkcm9ja0FQSUtleS1h', { kind: 'plain', apiKey: 'ABSKQmVkcm9ja0FQSUtleS1h' }],
  [
    'amazon-bedrock',
    json(AWS),
    {
      kind: 'aws',
      accessKeyId: AWS.accessKeyId,
      secretAccessKey: AWS.secretAccessKey,
      awsRegion: 'us-east-1',
      region: null,
      secrets: [AWS.secretAccessKey, AWS.accessKeyId],
    },
  ],
  ['amazon-bedrock/claude-on-aws', json({ ...AWS, region: 'us-gov-west-1' }), { awsRegion: 'us-gov-west-1' }],
  ['amazon-bedrock/claude-on-aws', 'ABSKx', { kind: 'plain' }],
  [
    'azure',
    json([RESOURCE]),
    {
      kind: 'azure',
      resources: [{ apiKey: RESOURCE.api_key, resourceName: 'my-resource', resourceType: 'openai' }],
      deployments: [],
      secrets: [RESOURCE.api_key],
      region: null,
    },
  ],
  [
    'azure',
    json([{ ...RESOURCE, resource_type: 'ai_foundry' }, DEPLOYMENT]),
    {
      resources: [{ resourceType: 'ai_foundry' }],
      deployments: [
        {
          apiKey: DEPLOYMENT.api_key,
          modelSlug: 'openai/gpt-x',
          endpointUrl: DEPLOYMENT.endpoint_url,
          modelId: 'gpt-x',
        },
      ],
      secrets: [DEPLOYMENT.api_key, RESOURCE.api_key],
    },
  ],
  ['azure', json([RESOURCE, { ...RESOURCE, resource_name: 'b' }]), { secrets: [RESOURCE.api_key] }],
  [
    'azure',
    at('https://models.example.com'),
    { deployments: [{ endpointUrl: 'https://models.example.com/' }] },
  ],
  [
    'azure',
    at('HTTPS://Models.Example.COM:443/a'),
    { deployments: [{ endpointUrl: 'https://models.example.com/a' }] },
  ],
  [
    'google-vertex',
    json(ACCOUNT),
    {
      kind: 'vertex',
      clientEmail: ACCOUNT.client_email,
      privateKey: RSA,
      projectId: 'my-project-1',
      location: 'global',
      bucket: null,
      region: null,
    },
  ],
  [
    'google-vertex',
    json({ ...ACCOUNT, region: 'us-central1', bucket: 'gs://my-bucket', unknown: 1 }),
    { location: 'us-central1', bucket: 'my-bucket' },
  ],
  [
    'google-vertex',
    json({ ...ACCOUNT, region: 'eu', project_id: 'example.com:my-project' }),
    { location: 'eu' },
  ],
  ['google-vertex', without(ACCOUNT, 'private_key_id'), { privateKeyId: null }],
]

/** Provider, key, and the message. */
const REFUSED: readonly (readonly [string, string, RegExp])[] = [
  ['anthropic', '', /must be an API key of 1 to 4096 printable/],
  ['anthropic', `${CANARY} x`, /printable/],
  ['anthropic', `${CANARY}\n`, /printable/],
  ['anthropic', `\t${CANARY}`, /printable/],
  ['anthropic', `${CANARY}\r\nx-evil: 1`, /printable/],
  ['anthropic', `${CANARY}\0`, /printable/],
  ['anthropic', `${CANARY}é`, /printable/],
  ['anthropic', `${CANARY}\u{1F511}`, /printable/],
  ['anthropic', `${CANARY}\ud800`, /printable/],
  ['anthropic', CANARY.repeat(400), /printable/],
  ['anthropic', 'x'.repeat(65_537), /at most 65536 characters/],
  ['anthropic', json({ api_key: CANARY }), /must be the plain key for this provider, not JSON/],
  ['anthropic', json([CANARY]), /not JSON/],
  ['anthropic', json(CANARY), /not JSON/],
  ['google-ai-studio', json(ACCOUNT), /not JSON/],
  ['openai', `{"api_key":"${CANARY}"`, /must be valid JSON/],
  ['openai', json([CANARY]), /must be a JSON object/],
  ['openai', json(CANARY), /must be a JSON object/],
  ['openai', json({ region: 'us' }), /api_key is required/],
  ['openai', json({ api_key: CANARY, region: 'eu' }), /region must be us, europe or global/],
  ['openai', json({ api_key: CANARY, region: CANARY }), /region must be/],
  ['openai', json({ api_key: CANARY, region: ['us'] }), /region must be/],
  ['openai', json({ api_key: CANARY, [CANARY]: 1 }), /must have no fields other than api_key and region/],
  ['openai', `{"api_key":"${CANARY}","__proto__":{"region":"us"}}`, /must have no fields other than/],
  ['openai', json({ api_key: 7 }), /api_key must be an API key/],
  ['openai', json({ api_key: `${CANARY} x` }), /api_key must be an API key/],
  ['openai', json({ api_key: '' }), /api_key must be an API key/],
  ['fireworks', json({ api_key: null }), /api_key is required/],
  ['amazon-bedrock', '', /printable/],
  ['amazon-bedrock', `${CANARY} x`, /printable/],
  ['amazon-bedrock', json([AWS]), /must be a JSON object/],
  ['amazon-bedrock', without(AWS, 'accessKeyId'), /accessKeyId is required/],
  ['amazon-bedrock', without(AWS, 'secretAccessKey'), /secretAccessKey is required/],
  ['amazon-bedrock', without(AWS, 'region'), /region is required/],
  [
    'amazon-bedrock',
    json({ ...AWS, accessKeyId: 'ASIAIOSFODNN7EXAMPLE' }),
    /accessKeyId must be .* an IAM user/,
  ],
  ['amazon-bedrock', json({ ...AWS, accessKeyId: CANARY }), /accessKeyId must be/],
  ['amazon-bedrock', json({ ...AWS, secretAccessKey: CANARY }), /secretAccessKey must be/],
  [
    'amazon-bedrock',
    json({ ...AWS, sessionToken: CANARY }),
    /must have no fields other than accessKeyId, secretAccessKey and region/,
  ],
  ['amazon-bedrock', json({ ...AWS, region: 'us-east-1.evil.com' }), /region must be/],
  ['amazon-bedrock', json({ ...AWS, region: 'us-east-1/' }), /region must be/],
  ['amazon-bedrock', json({ ...AWS, region: 'europe' }), /region must be/],
  ['azure', CANARY, /must be valid JSON/],
  ['azure', json(RESOURCE), /must be a JSON array of 1 to 100/],
  ['azure', '[]', /must be a JSON array/],
  ['azure', json(Array.from({ length: 101 }, () => RESOURCE)), /must be a JSON array/],
  ['azure', json([RESOURCE, null]), /\[1\] must be a JSON object/],
  ['azure', json([[RESOURCE]]), /\[0\] must be a JSON object/],
  ['azure', json([{ api_key: CANARY }]), /\[0\]\.resource_type is required/],
  [
    'azure',
    json([{ ...RESOURCE, resource_type: 'cognitive' }]),
    /resource_type must be ai_foundry or openai/,
  ],
  ['azure', json([{ ...RESOURCE, resource_name: 'evil.com#' }]), /resource_name must be/],
  ['azure', json([{ ...RESOURCE, resource_name: 'evil.com/' }]), /resource_name must be/],
  ['azure', json([{ ...RESOURCE, resource_name: '' }]), /resource_name must be/],
  [
    'azure',
    json([{ ...RESOURCE, endpoint: CANARY }]),
    /\[0\] must have no fields other than api_key, resource_name and/,
  ],
  ['azure', json([{ ...RESOURCE, ...DEPLOYMENT }]), /\[0\] must have no fields other than model_slug/],
  ['azure', json([{ api_key: CANARY, model_id: 'x' }]), /model_slug is required/],
  ['azure', json([{ ...DEPLOYMENT, model_slug: 'gpt-x' }]), /model_slug must be/],
  ['azure', json([{ ...DEPLOYMENT, model_id: '../admin' }]), /model_id must be/],
  ['azure', json([{ ...DEPLOYMENT, api_key: '' }]), /\[0\]\.api_key must be/],
  ['azure', json([DEPLOYMENT, DEPLOYMENT]), /two deployments with the same model_slug/],
  ...[
    'http://my-resource.openai.azure.com/',
    `https://user:${CANARY}@models.example.com/`,
    'https://@models.example.com/',
    'https://127.0.0.1/',
    'https://2130706433/',
    'https://0x7f.1/',
    'https://8.8.8.8/',
    'https://[::1]/',
    'https://[2001:db8::1]/',
    'https://localhost/',
    'https://models.localhost/',
    'https://metadata.google.internal/',
    'https://db.local/',
    'https://intranet/',
    'https://models.example.com./',
    'https://models..example.com/',
    'https://models.example.com:8443/',
    `https://models.example.com/?key=${CANARY}`,
    `https://models.example.com/?api-version=1&sig=${CANARY}`,
    'https://models.example.com/#x',
    'https:\\\\models.example.com/',
    'https://models.example.com\\@evil.com/',
    'https://models.exa\tmple.com/',
    ' https://models.example.com/',
    'ftp://models.example.com/',
    'file:///etc/passwd',
    'javascript:alert(1)',
    `https://${'a'.repeat(2100)}.com/`,
    '',
  ].map(
    url => ['azure', at(url), /\[0\]\.endpoint_url must be an https URL with a public host name/] as const,
  ),
  ['google-vertex', CANARY, /must be valid JSON/],
  ['google-vertex', json([ACCOUNT]), /must be a JSON object/],
  ['google-vertex', json({ ...ACCOUNT, type: 'authorized_user' }), /type must be service_account/],
  ['google-vertex', without(ACCOUNT, 'private_key'), /private_key is required/],
  ['google-vertex', without(ACCOUNT, 'client_email'), /client_email is required/],
  ['google-vertex', without(ACCOUNT, 'project_id'), /project_id is required/],
  [
    'google-vertex',
    json({ ...ACCOUNT, private_key: CANARY }),
    /private_key must be an RSA key of 2048 to 4096 bits/,
  ],
  ['google-vertex', json({ ...ACCOUNT, private_key: WEAK_RSA }), /private_key must be an RSA key/],
  [
    'google-vertex',
    json({ ...ACCOUNT, private_key: SLOW_RSA }),
    /private_key must be an RSA key of 2048 to 4096/,
  ],
  ['google-vertex', json({ ...ACCOUNT, private_key: CURVE }), /private_key must be an RSA key/],
  ['google-vertex', json({ ...ACCOUNT, private_key: RSA.repeat(20) }), /private_key must be/],
  [
    'google-vertex',
    json({ ...ACCOUNT, token_uri: 'https://evil.com/token' }),
    /token_uri must be https:\/\/oauth2/,
  ],
  ['google-vertex', json({ ...ACCOUNT, universe_domain: 'evil.com' }), /universe_domain must be/],
  ['google-vertex', json({ ...ACCOUNT, client_email: 'a@evil.com' }), /client_email must be/],
  ['google-vertex', json({ ...ACCOUNT, project_id: '../../x' }), /project_id must be/],
  ['google-vertex', json({ ...ACCOUNT, region: 'evil.com/' }), /region must be/],
  ['google-vertex', json({ ...ACCOUNT, region: 7 }), /region must be/],
  ['google-vertex', json({ ...ACCOUNT, bucket: 'a/../b' }), /bucket must be/],
  ['google-vertex', json({ ...ACCOUNT, private_key_id: `${CANARY}-` }), /private_key_id must be/],
]

for (const [index, [provider, key, expected]] of ACCEPTED.entries()) {
  t.test(`accepted ${index + 1}: ${provider}`, async t => {
    t.match(parseProviderKey(provider, key), expected)
  })
}

for (const [index, [provider, key, message]] of REFUSED.entries()) {
  t.test(`refused ${index + 1}: ${provider}, ${message.source}`, async t => {
    try {
      parseProviderKey(provider, key)
      t.fail('it was accepted')
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      t.equal(error.code, 'invalid_request')
      t.match(error.message, /^key: /)
      t.match(error.message, message)
      t.notMatch(`${error.message}${String(error.cause)}${JSON.stringify(error.metadata)}`, CANARY)
    }
  })
}

t.test('the tables are long enough to mean something', async t => {
  t.ok(ACCEPTED.length + REFUSED.length >= 60, `${ACCEPTED.length} and ${REFUSED.length} cases`)
})

t.test('no text makes anything but a key or a refusal that does not repeat it', async t => {
  const provider = fc.constantFrom('anthropic', 'openai', 'amazon-bedrock', 'azure', 'google-vertex')
  const piece = fc.string({ minLength: 12, maxLength: 40 })
  const text = fc.oneof(
    piece,
    fc.json(),
    piece.map(secret => json([{ ...RESOURCE, resource_name: secret, [secret]: secret }])),
    piece.map(secret => json({ ...AWS, region: secret })),
  )
  const holds = () =>
    fc.assert(
      fc.property(provider, text, (slug, key) => {
        try {
          parseProviderKey(slug, key)
          return true
        } catch (error) {
          return (
            error instanceof GatewayError &&
            error.code === 'invalid_request' &&
            error.message.startsWith('key: ') &&
            !(key.length >= 12 && error.message.includes(key))
          )
        }
      }),
      { numRuns: 3_000, seed: 42 },
    )
  t.doesNotThrow(holds)
})

t.test('the secrets of a service account are its key without the frame', async t => {
  const key = parseProviderKey('google-vertex', json(ACCOUNT))
  const [body = ''] = key.secrets
  t.match(body, /^MII[A-Za-z0-9+/=]{1500,}$/)
  t.equal(RSA.replaceAll('\n', '').includes(body), true)
})

t.test('a deployment of the model goes before all resources', async t => {
  const key = parseProviderKey(
    'azure',
    json([RESOURCE, DEPLOYMENT, { ...RESOURCE, resource_name: 'second' }]),
  )
  if (key.kind !== 'azure') throw new Error('not azure')
  t.match(azureTargets(key, 'openai/gpt-x'), [{ modelId: 'gpt-x' }])
  t.equal(azureTargets(key, 'openai/gpt-x').length, 1)
  t.match(azureTargets(key, 'openai/gpt-y'), [{ resourceName: 'my-resource' }, { resourceName: 'second' }])
  t.same(azureTargets({ ...key, resources: [] }, 'openai/gpt-y'), [])
})

/** Provider, key, label. */
const LABELS: readonly (readonly [string, string, string])[] = [
  ['anthropic', 'sk-ant-api03-0123456789AbCd', 'sk-...AbCd'],
  ['openai', 'sk-proj-0123456789wxyz', 'sk-...wxyz'],
  ['openai', json({ api_key: 'sk-proj-0123456789wxyz', region: 'us' }), 'sk-...wxyz'],
  ['groq', 'gsk_0123456789abcdef', 'gsk_...cdef'],
  ['xai', 'xai-0123456789abcdef', 'xai-...cdef'],
  ['fireworks', 'fw_0123456789abcdef', 'fw_...cdef'],
  ['google-ai-studio', 'AIzaSyA0123456789', 'AIza...6789'],
  ['mistral', '0123456789abcdef', '...cdef'],
  ['mistral', '0123456789abcde', '****'],
  ['mistral', 'x', '****'],
  ['openai', 'sk-0123456789ab', '****'],
  ['openai', 'sk-0123456789abc', 'sk-...9abc'],
  ['my-own', 'secretbeginning-0123456789', '...6789'],
  ['amazon-bedrock', 'ABSKQmVkcm9ja0FQSUtl', 'ABSK...SUtl'],
  ['amazon-bedrock', json(AWS), 'AKIA...MPLE'],
  ['azure', json([RESOURCE]), '...6789'],
  ['azure', json([RESOURCE, RESOURCE]), '...6789'],
  ['azure', json([RESOURCE, DEPLOYMENT]), '...9876 +1'],
  ['azure', json([{ ...RESOURCE, api_key: 'short' }]), '****'],
  ['google-vertex', json(ACCOUNT), '...4567'],
  ['google-vertex', without(ACCOUNT, 'private_key_id'), '****'],
]

t.test('labels follow one rule', async t => {
  for (const [provider, key, label] of LABELS)
    t.equal(describeNewKey(provider, undefined, key).label, label, key.slice(0, 40))
})

t.test('a label shows four characters of a key at most, and none of a short one', async t => {
  const holds = () =>
    fc.assert(
      fc.property(fc.stringMatching(/^[!-z]{1,80}$/), text => {
        fc.pre(!/^[[{"]/.test(text))
        const label = maskKey(parseProviderKey('mistral', text))
        if (text.length < 16) return label === '****'
        const [shown = '', end = ''] =
          label.split('...').length === 2 ? label.split('...') : ['', label.slice(-4)]
        return text.endsWith(end) && end.length === 4 && shown.length <= 6 && text.startsWith(shown)
      }),
      { numRuns: 2_000, seed: 42 },
    )
  t.doesNotThrow(holds)
})

t.test('the region comes from the key alone', async t => {
  t.equal(describeNewKey('openai', undefined, json({ api_key: 'sk-1', region: 'europe' })).region, 'europe')
  t.equal(describeNewKey('openai', undefined, 'sk-1').region, null)
  t.equal(
    describeNewKey('amazon-bedrock', undefined, json(AWS)).region,
    null,
    'a place of the provider is no declared region',
  )
  t.equal(describeNewKey('azure', undefined, json([RESOURCE])).region, null)
})
