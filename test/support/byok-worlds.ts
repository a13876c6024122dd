/**
 * Enumerates worlds of own credentials, with the candidates to try in each, in order, according to an independent
 * oracle: a plain reading of the rules that shares no code with the gateway.
 */
import type { Config } from '../../src/process/config/settings.ts'
import type { Credential } from '../../src/providers/credentials/catalog.ts'
import { credentialOf } from './own-keys.ts'

export const CALLER = 'a'.repeat(64)
const STRANGER = 'b'.repeat(64)

type Region = 'europe' | 'us'

interface Place {
  readonly provider: string
  readonly region: Region | null
  readonly zdr: boolean
}

/** Where the models of the worlds run, in the order of the catalogue. */
const MODELS: Readonly<Record<string, readonly Place[]>> = {
  'm/one': [
    { provider: 'p', region: null, zdr: false },
    { provider: 'q', region: 'europe', zdr: true },
  ],
  'm/two': [{ provider: 'p', region: null, zdr: true }],
}

export function modelRows(): Config['models'] {
  return Object.entries(MODELS).map(([id, places]) => ({
    id,
    endpoints: places.map(({ provider, region, zdr }) => ({
      provider,
      zdr,
      ...(region === null ? {} : { region }),
    })),
  }))
}

/** The shared key of a provider; a BYOK key is named by its credential. */
export const sharedKey = (provider: string) => `shared-key-of-${provider}`

export interface World {
  readonly credentials: readonly Credential[]
  readonly request: {
    readonly model: string
    readonly user: string | null
    readonly region: Region | null
    readonly zdr: boolean
  }
}

const KINDS: readonly Partial<Credential>[] = [
  {},
  { isRequired: true },
  { isByokOnly: true },
  { isRequired: true, isByokOnly: true },
  { isFallback: true },
]

/** What stands beside the credential that varies. */
const COMPANIES: readonly (readonly Credential[])[] = [
  [],
  [
    credentialOf('p', { id: 'early', sortOrder: 1 }),
    credentialOf('p', { id: 'late', sortOrder: 9, declaredRegion: 'europe' }),
    credentialOf('q', { id: 'spare', sortOrder: 0, isFallback: true, declaredZdr: true }),
  ],
  [
    credentialOf('q', { id: 'only', isByokOnly: true, allowedModels: ['m/one'], declaredRegion: 'europe' }),
    credentialOf('p', { id: 'spare', sortOrder: 2, isFallback: true }),
    credentialOf('p', { id: 'off', sortOrder: 0, disabled: true, isRequired: true }),
  ],
]

/** Every combination of one credential with its company and a request. */
export function* worlds(): Generator<World> {
  for (const company of COMPANIES)
    for (const credential of credentials())
      for (const request of requests()) yield { credentials: [credential, ...company], request }
}

function* credentials(): Generator<Credential> {
  for (const kind of KINDS)
    for (const allowedModels of [null, ['m/one', 'm/none'], ['m/two']])
      for (const allowedApiKeyHashes of [null, [STRANGER, CALLER], [STRANGER]])
        for (const allowedUserIds of [null, ['ann', 'bob'], ['Ann']])
          for (const declaredRegion of [null, 'global', 'europe', 'us'] as const)
            for (const declaredZdr of [null, true, false])
              for (const disabled of [false, true])
                yield credentialOf('p', {
                  ...{ id: 'varied', sortOrder: 5, ...kind, disabled },
                  ...{ allowedModels, allowedApiKeyHashes, allowedUserIds, declaredRegion, declaredZdr },
                })
}

function* requests(): Generator<World['request']> {
  for (const model of Object.keys(MODELS))
    for (const user of [null, 'ann'])
      for (const region of [null, 'europe', 'us'] as const)
        for (const zdr of [false, true]) yield { model, user, region, zdr }
}

/** The keys to be tried, in order, each as `provider/credential` or `provider/shared`. */
export function expected({ credentials, request }: World): string[] {
  const places = MODELS[request.model] ?? []
  const own: string[] = []
  const shared: string[] = []
  const fallback: string[] = []
  for (const place of places) {
    let removed = false
    const keys = credentials.filter(credential => !credential.disabled)
    for (const key of keys) {
      if (key.isRequired && key.provider === place.provider) removed = true
      if (key.isByokOnly) {
        const applies = key.allowedModels === null || key.allowedModels.includes(request.model)
        if (applies && places.some(({ provider }) => provider === key.provider)) removed = true
      }
    }
    const inRegion = request.region === null || place.region === request.region
    if (!removed && inRegion && (place.zdr || !request.zdr)) shared.push(`${place.provider}/shared`)

    for (const key of [...keys].sort((a, b) => a.sortOrder - b.sortOrder)) {
      if (key.provider !== place.provider) continue
      if (key.allowedModels !== null && !key.allowedModels.includes(request.model)) continue
      if (key.allowedApiKeyHashes !== null && !key.allowedApiKeyHashes.includes(CALLER)) continue
      if (key.allowedUserIds !== null) {
        if (request.user === null || !key.allowedUserIds.includes(request.user)) continue
      }
      if (request.region !== null) {
        if (key.declaredRegion !== request.region) continue
        if (place.region !== null && place.region !== request.region) continue
      }
      if (request.zdr) {
        if (key.declaredZdr === false) continue
        if (key.declaredZdr === null && !place.zdr) continue
      }
      if (key.isFallback) fallback.push(`${place.provider}/${key.id}`)
      else own.push(`${place.provider}/${key.id}`)
    }
  }
  return [...own, ...shared, ...fallback]
}
