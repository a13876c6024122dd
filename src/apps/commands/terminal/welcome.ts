/** Output at the start of a gateway: addresses, first keys, and a request to try. */
import { chmodSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import type { FirstKeys } from '../../../callers/bootstrap.ts'
import type { Config } from '../../../process/config/settings.ts'
import type { Catalog } from '../../../providers/catalog.ts'
import { makeFolder, sqlitePath } from '../../../storage/data-folder.ts'

/** The command that creates a key at any time. */
export const MAKE_KEY = 'npx sluice keys create --name NAME'

export interface StartInfo {
  readonly version: string
  readonly config: Config
  /** The path of the configuration file; null: there is none. */
  readonly file: string | null
  readonly catalog: Catalog
  readonly url: string
  readonly adminUrl: string
}

/** The lines at the top of a terminal. */
export function banner({ version, config, file, catalog, url, adminUrl }: StartInfo): string {
  const models = catalog.models()
  const providers = new Set(models.flatMap(model => model.endpoints.map(endpoint => endpoint.provider.name)))
  const rows = [
    ['configuration', file ?? 'none: all settings have their defaults'],
    ['storage', storageName(config.storage.url)],
    [
      'models',
      `${models.length} of ${providers.size === 1 ? [...providers].join() : `${providers.size} providers`}`,
    ],
    ['API', `${url}/v1`],
    ['admin', `${adminUrl}/`],
  ]
  const lines = rows.map(([name = '', value = '']) => `  ${name.padEnd(14)} ${value}`)
  return `\nSluice ${version}\n${lines.join('\n')}\n\n`
}

/** Without user and password. */
function storageName(url: string): string {
  const path = sqlitePath(url)
  if (path !== null) return resolve(path)
  return URL.canParse(url) ? `PostgreSQL at ${new URL(url).host}${new URL(url).pathname}` : 'PostgreSQL'
}

/** The first keys, the variables of the docs, and a request that works when pasted. All are shown only once. */
export function firstKeysText(keys: FirstKeys, started: Pick<StartInfo, 'catalog' | 'url'>): string {
  return [
    'First keys, shown only once:',
    `  management key  ${keys.managementKey}`,
    `  API key         ${keys.apiKey}`,
    '',
    'To run the examples in the docs, set these in a shell:',
    `  export URL=${started.url} KEY=${keys.apiKey} MANAGEMENT_KEY=${keys.managementKey}`,
    '',
    ...firstRequest(keys.apiKey, started),
    `To create another key at any time: ${MAKE_KEY}`,
    '',
  ].join('\n')
}

function firstRequest(
  apiKey: string,
  { catalog, url }: Pick<StartInfo, 'catalog' | 'url'>,
): readonly string[] {
  const model = modelToTry(catalog)
  if (model === null) return ['There are no models yet: add one to the configuration file.', '']
  const body = JSON.stringify({ model, input: 'Hello, Sluice!', stream: true })
  return [
    'Try it:',
    `  curl -N ${url}/v1/responses -H 'Authorization: Bearer ${apiKey}' -H 'Content-Type: application/json' -d '${body}'`,
    '',
  ]
}

/** The first text model whose provider can be called; otherwise the first text model, or else the first model. */
function modelToTry(catalog: Catalog): string | null {
  const models = catalog.models().filter(({ outputModalities }) => outputModalities.includes('text'))
  const ready = models.find(({ endpoints }) =>
    endpoints.some(({ provider }) => provider.auth === 'none' || provider.apiKey !== null),
  )
  return (ready ?? models[0] ?? catalog.models()[0])?.id ?? null
}

/** The file for first keys that are not shown on a terminal: next to the database, or in `./data` with PostgreSQL. */
export function firstKeysPath({ storage }: Pick<Config, 'storage'>): string {
  const path = sqlitePath(storage.url)
  return join(path === null ? resolve('data') : dirname(resolve(path)), 'first-keys')
}

/** Writes a file that only its owner can read, and replaces one of an earlier installation. */
export function writeFirstKeys(path: string, text: string): void {
  makeFolder(dirname(path))
  rmSync(path, { force: true })
  writeFileSync(path, text, { flag: 'wx', mode: 0o600, flush: true })
  // Set again, because the process's umask may have changed the mode.
  chmodSync(path, 0o600)
}
