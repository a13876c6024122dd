/**
 * Writes the tables of docs/configuration.md from the settings and those of docs/providers.md from the provider table:
 * `npm run docs:config`. A test checks that they are up to date.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { KindGuard, type TSchema } from '@sinclair/typebox'
import { SIM_MODELS } from '../src/apps/simulator/behaviours.ts'
import { expectedPhrase, literals } from '../src/base/settings/check.ts'
import type { Setting } from '../src/base/settings/setting.ts'
import { SearchEngineSchema } from '../src/features/tools/settings.ts'
import { AlertReceiver, ExportSchema } from '../src/process/config/list-rows.ts'
import { SETTINGS } from '../src/process/config/settings.ts'
import type { DataPolicy } from '../src/protocol/provider.ts'
import {
  EndpointSchema,
  GuardSchema,
  ModelSchema,
  PricingSchema,
  ProviderSchema,
  RolloutSchema,
  RouteSchema,
  TargetSchema,
} from '../src/providers/row-schemas.ts'
import { displayName, KEY_VARIABLES, KNOWN_SLUGS, PROVIDERS, whyNotOffered } from '../src/providers/table.ts'

type Tables = Readonly<Record<string, () => string>>

const CONFIGURATION: Tables = {
  environment: environmentTable,
  keyVariables: keyVariablesTable,
  simulated: simulatedTable,
  settings: settingsTable,
  providers: () => fieldsTable(ProviderSchema.properties),
  models: () => fieldsTable(ModelSchema.properties),
  endpoints: () => fieldsTable(EndpointSchema.properties),
  pricing: () => fieldsTable(PricingSchema.properties),
  exports: () => fieldsTable(ExportSchema.properties),
  alerts: () => fieldsTable(AlertReceiver.properties),
  engines: () => fieldsTable(SearchEngineSchema.properties),
}

const PROVIDER_TABLES: Tables = { offered: offeredTable, unoffered: unofferedTable }

const ROUTE_TABLES: Tables = {
  routes: () => fieldsTable(RouteSchema.properties),
  targets: () => fieldsTable(TargetSchema.properties),
}

const ROLLOUT_TABLES: Tables = {
  rollouts: () => fieldsTable(RolloutSchema.properties),
  guard: () => fieldsTable(GuardSchema.properties),
}

/** A page of the documentation with tables of its own. */
export interface Page {
  readonly file: string
  readonly tables: Tables
}

const docs = (name: string): string => join(import.meta.dirname, '../docs', name)

export const PAGES: readonly Page[] = [
  { file: docs('configuration.md'), tables: CONFIGURATION },
  { file: docs('providers.md'), tables: PROVIDER_TABLES },
  { file: docs('routes.md'), tables: ROUTE_TABLES },
  { file: docs('rollouts.md'), tables: ROLLOUT_TABLES },
]

/** The page with its tables made anew, each between `<!-- table NAME -->` and `<!-- end -->`. */
export function withTables(page: string, tables: Tables): string {
  const missing = new Set(Object.keys(tables))
  const text = page.replace(/(<!-- table (\w+) -->\n).*?(<!-- end -->)/gs, (_, start, name, end) => {
    missing.delete(name)
    const table = tables[name]
    if (table === undefined) throw new Error(`no table ${name}`)
    return `${start}\n${table()}\n${end}`
  })
  if (missing.size > 0) throw new Error(`the page lacks ${[...missing].join(', ')}`)
  return text
}

function environmentTable(): string {
  const rows = SETTINGS.flatMap(setting => {
    const { env, secret, environmentOnly } = setting.notes
    if (env === undefined) return []
    const names = secret === true ? `\`${env}\`, \`${env}_FILE\`` : `\`${env}\``
    if (environmentOnly === true) return [[names, onlyHere(setting)]]
    const words = KindGuard.IsBoolean(setting.schema) ? ' (`0` or `1`)' : ''
    return [[names, `sets \`${setting.path.join('.')}\`${words}`]]
  })
  return table(['variable', 'meaning'], rows)
}

function offeredTable(): string {
  const rows = PROVIDERS.map(
    ({ slug, name, format, embeddings, baseUrl, auth, keyForm = 'plain', policy }) => [
      `\`${slug}\``,
      name,
      `\`${format}\`${embeddings === undefined ? '' : `, \`${embeddings}\``}`,
      `\`${baseUrl}\``,
      `\`${auth}\``,
      keyForm === 'plain' ? 'the key' : keyForm,
      policyText(policy),
    ],
  )
  return table(['slug', 'name', 'format', 'address', 'auth', '[key](byok.md#keys)', 'data'], rows)
}

function policyText(policy: DataPolicy | undefined): string {
  if (policy === undefined) return ''
  const { trains, retentionDays } = policy
  const training = trains === null ? [] : [trains ? 'may train' : 'does not train']
  const keeping =
    retentionDays === null
      ? []
      : [retentionDays === 0 ? 'keeps nothing' : `keeps up to ${retentionDays} days`]
  return [...training, ...keeping].join(', ')
}

function unofferedTable(): string {
  const rows = KNOWN_SLUGS.flatMap(slug => {
    const why = whyNotOffered(slug)
    return why === null ? [] : [[`\`${slug}\``, displayName(slug) ?? slug, why]]
  })
  return table(['slug', 'name', 'why'], rows)
}

function keyVariablesTable(): string {
  const rows = [...KEY_VARIABLES].map(([slug, name]) => [`\`${slug}\``, `\`${name}\``])
  return table(['provider', 'variable'], rows)
}

function simulatedTable(): string {
  const rows = SIM_MODELS.flatMap(model =>
    'listed' in model ? [[`\`sim/${model.name}\``, `${model.does}${numbersOf(model)}`]] : [],
  )
  return table(['model', 'what it does'], rows)
}

/** The numbers that may follow its name. */
function numbersOf({ numbers }: (typeof SIM_MODELS)[number]): string {
  const words = numbers.map(({ name, byDefault }) => `${name} (default ${byDefault})`)
  return words.length === 0 ? '' : `; numbers after the name: ${words.join(', ')}`
}

/** A setting that the settings table does not show. */
function onlyHere({ schema, notes, description }: Setting): string {
  const values = literals(schema) === undefined ? '' : `: ${valuesOf(schema)}`
  return `${description}${values}${notes.default === undefined ? '' : `; default ${defaultOf(notes)}`}`
}

function settingsTable(): string {
  const rows = SETTINGS.filter(({ notes }) => notes.environmentOnly !== true).map(
    ({ path, schema, notes, description }) => [
      `\`${path.join('.')}\``,
      valuesOf(schema),
      defaultOf(notes),
      description,
    ],
  )
  return table(['setting', 'values', 'default', 'meaning'], rows)
}

function fieldsTable(properties: Readonly<Record<string, TSchema>>): string {
  const rows = Object.entries(properties).map(([name, schema]) => [
    `\`${name}\`${KindGuard.IsOptional(schema) ? '' : ' (required)'}`,
    valuesOf(schema),
    schema.description ?? '',
  ])
  return table(['field', 'values', 'meaning'], rows)
}

function defaultOf({ default: value, defaultText }: Setting['notes']): string {
  if (defaultText !== undefined) return defaultText
  if (value === undefined) return 'none'
  return `\`${typeof value === 'string' ? value : JSON.stringify(value)}\``
}

function valuesOf(schema: TSchema): string {
  const phrase = expectedPhrase(schema)
  if (phrase !== undefined) return phrase
  const words = literals(schema)
  if (words !== undefined) return words.map(word => `\`${word}\``).join(' ')
  if (KindGuard.IsArray(schema))
    return KindGuard.IsObject(schema.items) ? 'rows' : `list of ${valuesOf(schema.items)}`
  if (KindGuard.IsBoolean(schema)) return '`true` `false`'
  if (KindGuard.IsInteger(schema)) return range('integer', schema)
  if (KindGuard.IsNumber(schema)) return range('number', schema)
  return KindGuard.IsString(schema) ? 'text' : 'map'
}

interface Bounds {
  readonly minimum?: number
  readonly exclusiveMinimum?: number
  readonly maximum?: number
  readonly exclusiveMaximum?: number
}

function range(kind: string, { minimum, exclusiveMinimum, maximum, exclusiveMaximum }: Bounds): string {
  const isOpen = exclusiveMinimum !== undefined || exclusiveMaximum !== undefined
  const low = exclusiveMinimum === undefined ? `from ${minimum}` : `above ${exclusiveMinimum}`
  if (exclusiveMaximum !== undefined) return `${kind} ${low} and below ${exclusiveMaximum}`
  if (maximum === undefined) return `${kind} ${low}`
  return `${kind} ${low} ${isOpen ? 'and at most' : 'to'} ${maximum}`
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [
    head,
    head.map(() => '---'),
    ...rows.map(row => row.map(cell => cell.replaceAll('|', '\\|'))),
  ]
  return lines.map(cells => `| ${cells.join(' | ')} |\n`).join('')
}

if (import.meta.main) {
  for (const { file, tables } of PAGES) writeFileSync(file, withTables(readFileSync(file, 'utf8'), tables))
}
