/**
 * The built-in providers. The compiler requires a row for each slug of the public enumeration; the rows are in `rows/`.
 * Pure.
 */

import { AUTH_OF_FORMAT, type KeyForm, type Provider } from '../protocol/provider.ts'
import type { ProviderSlug } from '../protocol/provider-slugs.ts'
import { OFFERED_ROWS } from './rows/offered.ts'
import type { Row, ServingRow } from './rows/row.ts'
import { UNOFFERED_ROWS } from './rows/unoffered.ts'

/** Local servers. They are not in the public enumeration, so the gateway stores no credentials for them. */
type LocalSlug = 'llamacpp' | 'vllm'

const ROWS: Readonly<Record<ProviderSlug | LocalSlug, Row>> = {
  ...OFFERED_ROWS,
  ...UNOFFERED_ROWS,
}

/** In alphabetical order of the slugs. Keys come from the configuration or from stored credentials. */
const SORTED_ROWS: readonly (readonly [slug: string, row: Row])[] = Object.entries(ROWS).toSorted(
  ([a], [b]) => (a < b ? -1 : 1),
)

const BY_SLUG: ReadonlyMap<string, Row> = new Map(SORTED_ROWS)

/** The providers that can be called. */
export const PROVIDERS: readonly Provider[] = SORTED_ROWS.flatMap(([slug, row]) =>
  'format' in row ? [providerOf(slug, row)] : [],
)

/** The environment variables of the operator's keys, by slug. */
export const KEY_VARIABLES: ReadonlyMap<string, string> = new Map(
  SORTED_ROWS.flatMap(([slug, row]) =>
    'format' in row && row.keyVariable !== undefined ? [[slug, row.keyVariable] as const] : [],
  ),
)

/** The slugs of all rows: providers that can be called, and those that the operator must configure first. */
export const KNOWN_SLUGS: readonly string[] = SORTED_ROWS.map(([slug]) => slug)

/** The display name of a slug in the table; undefined for others. */
export function displayName(slug: string): string | undefined {
  return BY_SLUG.get(slug)?.name
}

/** The reason why a provider of the table cannot be called; null: it can, or the table does not contain the slug. */
export function whyNotOffered(slug: string): string | null {
  const row = BY_SLUG.get(slug)
  return row !== undefined && 'notOffered' in row ? row.notOffered : null
}

/** The form of a provider's keys; `plain` if the table does not contain it. */
export function keyFormOf(slug: string): KeyForm {
  const row = BY_SLUG.get(slug)
  return (row !== undefined && 'format' in row ? row.keyForm : undefined) ?? 'plain'
}

function providerOf(slug: string, { keyVariable: _variable, ...row }: ServingRow): Provider {
  return {
    slug,
    auth: AUTH_OF_FORMAT[row.format],
    apiKey: null,
    quirks: [],
    headers: {},
    onAbort: 'cancel',
    ...row,
  }
}
