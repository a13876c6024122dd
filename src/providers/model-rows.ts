/** Builds models and their endpoints from rows, and validates the rows. Pure. */
import { didYouMean } from '../base/did-you-mean.ts'
import type { Faults } from '../base/settings/check.ts'
import {
  type AnyFormatName,
  EMBEDDINGS_FORMAT_NAMES,
  EMBEDDINGS_OF_FORMAT,
  type Endpoint,
  FORMAT_NAMES,
  isEmbeddingsFormat,
  type Model,
  makesEmbeddings,
  type Provider,
} from '../protocol/provider.ts'
import { pricingOf, UNKNOWN_PRICING } from './price-rows.ts'
import { FAULTY_PROVIDER, quote, supportedSettings } from './provider-rows.ts'
import type { EndpointRow, ModelRow } from './row-schemas.ts'
import { KNOWN_SLUGS, whyNotOffered } from './table.ts'

/** The position of a row, and the data that it is checked against. */
interface RowContext {
  readonly path: string
  readonly providers: ReadonlyMap<string, Provider>
  readonly faults: Faults
  readonly created: number
}

/** Builds the model of a row. Errors are added to `faults`. */
export function modelOf(row: ModelRow, context: RowContext): Model {
  const { outputModalities = ['text'] } = row
  if (outputModalities.length > 1 && makesEmbeddings({ outputModalities })) {
    context.faults.add(`${context.path}.outputModalities`, 'embeddings must be the only entry')
  }
  const endpoints = row.endpoints.map((endpoint, index) =>
    endpointOf(endpoint, row, { ...context, path: `${context.path}.endpoints[${index}]` }),
  )
  return {
    id: row.id,
    name: row.name ?? row.id,
    created: row.created ?? context.created,
    contextLength: row.contextLength ?? null,
    maxOutputTokens: row.maxOutputTokens ?? null,
    inputModalities: row.inputModalities ?? ['text'],
    isInputStated: row.inputModalities !== undefined,
    outputModalities,
    endpoints,
  }
}

function endpointOf(row: EndpointRow, model: ModelRow, { path, providers, faults }: RowContext): Endpoint {
  const provider = providerFor(row, providers, problem => faults.add(`${path}.provider`, problem))
  return {
    modelId: model.id,
    upstreamModel: row.upstreamModel ?? model.id.slice(model.id.indexOf('/') + 1),
    provider,
    format: formatOf(row, model, provider, problem => faults.add(`${path}.format`, problem)),
    pricing: row.pricing === undefined ? UNKNOWN_PRICING : pricingOf(row.pricing, `${path}.pricing`, faults),
    contextLength: row.contextLength ?? model.contextLength ?? null,
    maxOutputTokens: row.maxOutputTokens ?? model.maxOutputTokens ?? null,
    region: row.region ?? null,
    ...dataPolicyOf(row, provider),
    ...(row.serviceTier === undefined ? {} : { serviceTier: row.serviceTier }),
    quantization: row.quantization ?? 'unknown',
    drawsImages: model.outputModalities?.includes('image') ?? false,
    ...(row.thinks === false ? { thinks: false as const } : {}),
    ...(model.promptCaching === undefined ? {} : { promptCaching: model.promptCaching }),
    ...(model.compaction === undefined ? {} : { compaction: model.compaction }),
    ...(row.continueStreams === undefined ? {} : { continueStreams: row.continueStreams }),
    ...(row.continues === undefined ? {} : { continues: row.continues }),
    ...supportedSettings(row),
    supportedParameters: row.supportedParameters === undefined ? null : new Set(row.supportedParameters),
  }
}

/** The row's own data policy; otherwise the provider's public statement. */
function dataPolicyOf({ zdr, trains }: EndpointRow, { policy }: Provider): Pick<Endpoint, 'zdr' | 'trains'> {
  const isSilent = zdr === undefined && trains === undefined
  const mayTrain = trains ?? (isSilent && policy?.trains === true)
  return {
    zdr: zdr ?? (isSilent && policy?.retentionDays === 0),
    ...(mayTrain ? { trains: true as const } : {}),
  }
}

/** The format in the row; otherwise the provider's format for this kind of output. */
function formatOf(
  row: EndpointRow,
  { outputModalities = [] }: ModelRow,
  provider: Provider,
  addFault: (problem: string) => void,
): AnyFormatName {
  const embeds = makesEmbeddings({ outputModalities })
  const format = row.format ?? defaultFormat(provider, embeds)
  if (provider !== FAULTY_PROVIDER && isEmbeddingsFormat(format) !== embeds)
    addFault(formatProblem(format, row.format))
  return format
}

/** @param rowFormat the format in the endpoint's row; undefined: the provider's format does not fit */
function formatProblem(format: AnyFormatName, rowFormat: AnyFormatName | undefined): string {
  const formatName = rowFormat ?? `the provider's format ${format}`
  if (!isEmbeddingsFormat(format)) {
    return `${formatName} does not produce embeddings: use one of ${EMBEDDINGS_FORMAT_NAMES.join(', ')}`
  }
  const remedy =
    rowFormat === undefined
      ? 'change format and baseUrl of the provider under providers'
      : `use one of ${FORMAT_NAMES.join(', ')}`
  return `${formatName} produces only embeddings: set outputModalities: [embeddings] on the model, or ${remedy}`
}

function defaultFormat({ format, embeddings }: Provider, embeds: boolean): AnyFormatName {
  if (!embeds || isEmbeddingsFormat(format)) return format
  return embeddings ?? EMBEDDINGS_OF_FORMAT[format] ?? format
}

function providerFor(
  { provider: slug }: EndpointRow,
  providers: ReadonlyMap<string, Provider>,
  addFault: (problem: string) => void,
): Provider {
  const provider = providers.get(slug)
  if (provider !== undefined && provider.baseUrl !== null) return provider
  if (provider !== undefined) addFault(`${quote(slug)} needs a baseUrl under providers`)
  else if (KNOWN_SLUGS.includes(slug)) {
    const reason = whyNotOffered(slug) ?? 'it has no built-in address'
    addFault(
      `${quote(slug)} is not offered: ${reason}. Add a row for it under providers, with format and baseUrl`,
    )
  } else addFault(unknownProvider(slug, [...providers.keys()]))
  return FAULTY_PROVIDER
}

/** Suggests a similar slug, or otherwise lists the usable ones. */
function unknownProvider(slug: string, usable: readonly string[]): string {
  const hint = didYouMean(slug, [...usable, ...KNOWN_SLUGS]) || `; the providers are ${usable.join(', ')}`
  return `no provider ${quote(slug)}${hint}`
}
