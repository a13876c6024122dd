/** Configuration files: that of the gateway under test, and broken ones with secrets in every place. Data. */
import { simModels, simProvider } from '../../src/apps/simulator/rows.ts'
import { FORMATS, type Format } from './canary-provider.ts'
import type { Secrets } from './canary-secrets.ts'
import { simFaultModels } from './sim-faults.ts'

interface Upstreams {
  /** Base URLs, by format. */
  readonly canary: (format: Format) => string
  readonly faulty: string
  readonly sim: string
}

/** So short that what keeps silent is soon given up. */
export const SHORT = { upstreamHeadersMs: 300, upstreamIdleMs: 300, requestMs: 2_500 }
/** So long that what answers is waited for, however busy the machine is. */
export const LONG = { upstreamHeadersMs: 60_000, upstreamIdleMs: 60_000, requestMs: 60_000 }

export function gatewaySettings(
  upstreams: Upstreams,
  secrets: Secrets,
  deadlines: typeof SHORT,
): Record<string, unknown> {
  const provider = (slug: string, format: Format, baseUrl: string, apiKey?: string) => ({
    slug,
    format,
    baseUrl,
    ...(apiKey === undefined ? {} : { apiKey }),
  })
  const model = (id: string, slug: string) => ({ id, endpoints: [{ provider: slug }] })
  return {
    storage: { url: 'sqlite:./data/gateway.db' },
    limits: { maxLagMs: 3_600_000 },
    capture: { enabled: true },
    alignment: { evaluator: { model: 'sim/judge-short' } },
    timeouts: { ...deadlines, drainMs: 500 },
    // Providers are made to fail, and have to be asked all the same.
    routing: { breakerFailures: null },
    providers: [
      { ...simProvider(upstreams.sim), apiKey: secrets.sharedKey },
      ...FORMATS.flatMap(format => [
        provider(`shared-${format}`, format, upstreams.canary(format), secrets.sharedKey),
        provider(`own-${format}`, format, upstreams.canary(format)),
        provider(`faulty-${format}`, format, upstreams.faulty, secrets.sharedKey),
      ]),
      ...secrets.ownKeys.map(own => provider(own.provider, 'openai-chat', upstreams.canary('openai-chat'))),
    ],
    models: [
      ...simModels(),
      ...simFaultModels(),
      ...FORMATS.flatMap(format =>
        ['shared', 'own', 'faulty'].map(kind => model(`${kind}/${format}`, `${kind}-${format}`)),
      ),
      ...['shared', 'own'].map(kind => ({
        ...model(`${kind}/vectors`, `${kind}-openai-chat`),
        outputModalities: ['embeddings'],
      })),
      ...secrets.ownKeys.map(own => model(`own/${own.provider}`, own.provider)),
    ],
  }
}

/** Files that no gateway starts with, by what is wrong with them. */
export function brokenFiles({
  sharedKey,
  wordKey: word,
  vaultKey,
}: Secrets): Readonly<Record<string, string>> {
  const row = (fields: object) =>
    JSON.stringify({ providers: [{ slug: 'x', format: 'openai-chat', baseUrl: 'http://h/', ...fields }] })
  return {
    'a key with a space': row({ apiKey: `${sharedKey} ` }),
    'a key that is a list': row({ apiKey: [sharedKey] }),
    'a key that is an object': row({ apiKey: { [sharedKey]: sharedKey } }),
    'a key under another name': row({ api_key: sharedKey }),
    'a key for a name': row({ [sharedKey]: true }),
    'a plain key for a name': row({ [word]: true }),
    'a key as the auth': row({ auth: sharedKey }),
    'a key as the format': row({ format: sharedKey }),
    'a key as the slug': row({ slug: sharedKey }),
    'a key in the base URL': row({ baseUrl: `https://h/?key=${sharedKey}` }),
    'a key as a quirk': row({ quirks: [sharedKey] }),
    'a key as a header': row({ headers: { [sharedKey]: sharedKey } }),
    'a header of a line break': row({ headers: { authorization: `${sharedKey}\n` } }),
    'a header that is no text': row({ headers: { authorization: [sharedKey] } }),
    'a variable that is not set': row({ apiKey: `\${NOT_SET}${sharedKey}` }),
    'a provider twice': JSON.stringify({
      providers: [
        { slug: 'x', apiKey: sharedKey },
        { slug: 'x', apiKey: sharedKey },
      ],
    }),
    'a model of a key': JSON.stringify({
      models: [{ id: `x/${word}`, endpoints: [{ provider: 'nobody' }] }],
    }),
    'a password in a storage URL': JSON.stringify({ storage: { url: `mysql://root:${sharedKey}@h/db` } }),
    'a password of a database that is not there': JSON.stringify({
      storage: { url: `postgres://root:${word}@127.0.0.1:1/db` },
    }),
    'a password of a strange database': JSON.stringify({
      storage: { url: `postgres://root:${sharedKey}@h:x/db` },
    }),
    'a password in a Redis URL': JSON.stringify({ redis: { url: `http://root:${sharedKey}@h/` } }),
    'a Redis URL that cannot be read': JSON.stringify({ redis: { url: `redis://root:${sharedKey}@h:x/` } }),
    'a setting of a key': JSON.stringify({ vaultKey: vaultKey.toString('base64') }),
    'no colon before a key': `providers:\n  - slug: x\n    apiKey ${word}\n    name: y\n`,
    'no space before a key': `providers:\n  - { slug: x, apiKey:${word} }\n`,
    'no space before a key in a block': `providers:\n  - slug: x\n    apiKey:${word}\n`,
    'a key like an alias': `providers:\n  - slug: x\n    apiKey: *${word}\n`,
    'a key like a tag': `providers:\n  - slug: x\n    apiKey: !${word}\n`,
    'a key like a known tag': `providers:\n  - slug: x\n    apiKey: !!${word} 1\n`,
    'a key like an anchor': `providers:\n  - slug: x\n    apiKey: &${word}\n    apiKey: 1\n`,
    'a key with a percent sign': `providers:\n  - slug: x\n    apiKey: %${word}\n`,
    'a key like a directive': `%${word} ${word}\n---\nproviders: []\n`,
    'a key with a quote': `providers:\n  - slug: x\n    apiKey: "${word}\n`,
    'a key with an escape': `providers:\n  - slug: x\n    apiKey: "\\q${word}"\n`,
    'a key with a colon': `providers:\n  - slug: x\n    apiKey: ${word}: ${word}\n`,
    'a key twice': `providers:\n  - slug: x\n    ${word}: 1\n    ${word}: 1\n`,
    'a key alone': word,
    'a key behind a tab': `providers:\n\t- slug: ${word}\n`,
  }
}
