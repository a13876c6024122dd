/** Secrets of every kind that a gateway gets, generated for each run so that nothing else can contain them. */
import { generateKeyPairSync, randomBytes } from 'node:crypto'
import type { Canary } from './canary-scan.ts'

const hex = (bytes: number) => randomBytes(bytes).toString('hex')
/** With characters that each writing treats differently. */
const odd = () => `K/${hex(9)}+${hex(9)}=~.${hex(6)}`

interface OwnKey {
  readonly provider: string
  /** As it goes into POST /byok. */
  readonly key: string
}

export interface Secrets {
  readonly apiKey: string
  readonly managementKey: string
  /** Of the form of an API key, but not one. */
  readonly strangeKey: string
  readonly vaultKey: Buffer
  readonly olderVaultKey: Buffer
  /** `GATEWAY_VAULT_KEYS` with both. */
  readonly vaultKeys: string
  readonly sharedKey: string
  readonly ownKey: string
  /** Nothing has to be escaped in it. */
  readonly wordKey: string
  readonly ownKeys: readonly OwnKey[]
  readonly prompt: string
  readonly endUser: string
  readonly safetyIdentifier: string
  readonly toolArgument: string
  readonly output: string
  /** Of lines of batches, which the store keeps; the provider answers the one with the other. */
  readonly batchPrompt: string
  readonly batchOutput: string
  /** Everything that is text, in one. Longer than any field that is stored may be. */
  readonly all: string
  readonly canaries: readonly Canary[]
}

export function makeSecrets(): Secrets {
  const vaultKey = randomBytes(32)
  const olderVaultKey = randomBytes(32)
  const plain = {
    'API key': `sk-gw-v1-${hex(32)}`,
    'management key': `sk-gw-mgmt-${hex(32)}`,
    'strange key': `sk-gw-v1-${hex(32)}`,
    'shared provider key': `shared-${odd()}`,
    'own provider key': `own-${odd()}`,
    'key of letters and digits': `wOrd${hex(20)}`,
    'AWS key id': `AKIA${hex(16).toUpperCase()}`,
    'AWS secret': `Aw/${hex(10)}+${hex(10)}=`,
    'Azure resource key': `azr-${hex(20)}`,
    'Azure deployment key': `azd-${odd()}`,
    'regional key': `sk-regional-${hex(20)}`,
    prompt: `what the caller asks ${hex(16)}`,
    'end user': `user/${hex(16)}@example`,
    'safety identifier': `safety-${hex(16)}`,
    'tool argument': `argument ${hex(16)}`,
    output: `what the model says ${hex(16)}`,
    'batch prompt': `what a line asks ${hex(16)}`,
    'batch output': `what a line is told ${hex(16)}`,
  } as const
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  const pemLine = pem.split('\n')[12] ?? ''
  const ring = `now:${vaultKey.toString('base64')},before:${olderVaultKey.toString('base64')}`
  const json = (value: unknown) => JSON.stringify(value)
  return {
    apiKey: plain['API key'],
    managementKey: plain['management key'],
    strangeKey: plain['strange key'],
    vaultKey,
    olderVaultKey,
    vaultKeys: ring,
    sharedKey: plain['shared provider key'],
    ownKey: plain['own provider key'],
    wordKey: plain['key of letters and digits'],
    ownKeys: [
      {
        provider: 'amazon-bedrock',
        key: json({
          accessKeyId: plain['AWS key id'],
          secretAccessKey: plain['AWS secret'],
          region: 'us-east-1',
        }),
      },
      {
        provider: 'azure',
        key: json([
          { resource_name: 'canary', resource_type: 'openai', api_key: plain['Azure resource key'] },
          {
            model_slug: 'own/azure',
            endpoint_url: 'https://canary.openai.azure.com/openai',
            api_key: plain['Azure deployment key'],
            model_id: 'gpt',
          },
        ]),
      },
      {
        provider: 'google-vertex',
        key: json({
          type: 'service_account',
          client_email: 'canary@project-id.iam.gserviceaccount.com',
          private_key: pem,
          private_key_id: 'abcdef0123456789abcdef',
          project_id: 'project-id',
        }),
      },
      { provider: 'openai', key: json({ api_key: plain['regional key'], region: 'europe' }) },
    ],
    prompt: plain.prompt,
    endUser: plain['end user'],
    safetyIdentifier: plain['safety identifier'],
    toolArgument: plain['tool argument'],
    output: plain.output,
    batchPrompt: plain['batch prompt'],
    batchOutput: plain['batch output'],
    all: [...Object.values(plain), pemLine, vaultKey.toString('base64'), 'x'.repeat(400)].join(' '),
    canaries: [
      ...Object.entries(plain).map(([name, text]) => ({ name, text })),
      { name: 'service account', text: pemLine },
      { name: 'vault key', text: vaultKey.toString('base64'), bytes: vaultKey },
      { name: 'vault key, its text', text: vaultKey.toString('base64') },
      { name: 'older vault key', text: olderVaultKey.toString('base64'), bytes: olderVaultKey },
      { name: 'older vault key, its text', text: olderVaultKey.toString('base64') },
    ],
  }
}

/** What a caller may see again in a good answer, because the interface echoes the request. */
export const CALLERS_OWN: ReadonlySet<string> = new Set([
  'prompt',
  'end user',
  'safety identifier',
  'tool argument',
  'output',
  'batch prompt',
  'batch output',
])
