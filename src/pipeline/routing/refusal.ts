/** Routing errors for requests that no endpoint may serve, with a way to fix the request if there is one. Pure. */
import { type FailureCode, GatewayError } from '../../base/errors.ts'
import { loggableModel } from '../../base/log/loggable.ts'
import { isLoss, reportedChanges } from '../../exchange/changes.ts'
import type { ClientRequest } from '../../exchange/exchange.ts'
import type { LossyCandidate } from '../../exchange/reasons.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import { type Model, makesEmbeddings } from '../../protocol/provider.ts'
import type { DialectName } from '../../protocol/request.ts'
import type { Catalog } from '../../providers/catalog.ts'
import { type Exclusions, statedInput } from './candidate.ts'
import {
  BYOK_REQUIRED,
  CONTEXT_LENGTH,
  INPUT_MODALITIES,
  MAX_OUTPUT_TOKENS,
  NO_SHARED_KEY,
  UNKNOWN_PRICE,
} from './filters.ts'
import type { Needs } from './needs.ts'
import { PROVIDER_PAUSED } from './pauses.ts'
import type { Preferences, RankFacts } from './rank-input.ts'
import { RESTRICTIONS } from './restrictions.ts'

export function wrongEndpoint(model: Model): GatewayError {
  const message = makesEmbeddings(model)
    ? `${model.id} produces embeddings: use POST /v1/embeddings`
    : `${model.id} generates text: use POST /v1/responses, /v1/chat/completions or /v1/messages; GET /v1/embeddings/models lists models that produce embeddings`
  return unavailable('wrong_endpoint', message, [model.id], [])
}

/** The error for an unknown model. @param dialect the caller's dialect, which may have its own error for this */
export function unknownModel(id: string, catalog: Catalog, dialect: DialectName): GatewayError {
  const meanings = catalog.meanings(id)
  if (meanings.length > 1) {
    const message = `${id} could mean ${meanings.slice(0, MAX_SHOWN_MEANINGS).join(' or ')}: name one of them`
    return unavailable('model_not_found', message, [id], [])
  }
  // Some callers put an API key in place of the model name.
  const shortId = loggableModel(id)
  const message = `${shortId} is not a valid model ID${adviceFor(id, catalog)}`
  return unavailable(DIALECT_ABILITIES[dialect].unknownModel, message, [shortId], [])
}

/** Maximum number of meanings that the error for an ambiguous name lists. */
const MAX_SHOWN_MEANINGS = 10

/** Additions to the name of a model, which the search for similar ids ignores. */
const SUFFIXES = /^~|-latest$|:\w{1,32}$/g

function adviceFor(id: string, catalog: Catalog): string {
  const similar = catalog.similar(id.replace(SUFFIXES, ''))
  const question = similar.length === 0 ? '' : `: did you mean ${similar.join(' or ')}?`
  return `${question}${question === '' ? ':' : ''} GET /v1/models lists all ids`
}

/** The error for a request that no endpoint may serve. `excludedBy`: the filters that left out candidates. */
export function nothingLeft(
  models: readonly Model[],
  { only }: Preferences,
  needs: Needs,
  excludedBy: ReadonlySet<string>,
): GatewayError {
  const ids = models.map(model => model.id)
  const reasons = [...excludedBy]
  const forbidden = RESTRICTIONS.filter(restriction => excludedBy.has(restriction))
  if (forbidden.length > 0) {
    const message = `A guardrail on this API key does not allow any endpoint of ${ids.join(', ')} (${forbidden.join(', ')}).`
    return unavailable('permission_denied', message, ids, reasons)
  }
  if (excludedBy.has(UNKNOWN_PRICE)) {
    const message = `The price of ${ids.join(', ')} is not known, so it cannot be compared with a spending limit, budget or credits. Use an API key without them or a BYOK credential, or have the operator set its pricing.`
    return unavailable('permission_denied', message, ids, reasons)
  }
  const unmetFilter = needs.special.find(filter => excludedBy.has(filter.excludedBy))
  if (unmetFilter !== undefined) return new GatewayError('invalid_request', unmetFilter.message)
  if (reasons.every(reason => reason === BYOK_REQUIRED || reason === NO_SHARED_KEY)) {
    return unavailable('no_endpoints', noKey(ids, excludedBy), ids, reasons)
  }
  if (only != null && only.length > 0 && excludedBy.has('allowed_providers')) {
    const servingProviders = new Set(
      models.flatMap(model => model.endpoints.map(({ provider }) => provider.slug)),
    )
    const message = `No allowed providers are available for the selected model. Providers serving ${ids.join(', ')}: ${[...servingProviders].join(', ')}, but your request's provider.only preference permits only: ${only.join(', ')}.`
    return unavailable('constraint_filtered', message, ids, reasons)
  }
  const unmet = unmetNeed(models, needs, reasons)
  if (unmet !== null) return unmet
  const message = `No endpoint of ${ids.join(', ')} may serve this request: ${reasons.map(reason => EXCLUSION_TEXTS[reason] ?? reason).join('; ')}.`
  return unavailable('constraint_filtered', message, ids, reasons)
}

/** The error for a request that could be served if operators had not paused providers. */
export function allPaused(
  models: readonly Model[],
  { list, reasons }: Pick<Exclusions, 'list' | 'reasons'>,
  { clock, pauses }: Pick<RankFacts, 'clock' | 'pauses'>,
): GatewayError {
  const ids = models.map(model => model.id)
  const slugs = list.flatMap(({ endpoint, by }) => (by === PROVIDER_PAUSED ? [endpoint.provider.slug] : []))
  const providers = [...new Set(slugs)]
  const endMs = Math.min(...providers.map(slug => pauses?.endOf(slug) ?? 0))
  const retryAfterSeconds = Math.max(1, Math.ceil((endMs - clock.nowMs()) / 1_000))
  const message = `An operator has taken ${providers.join(', ')} out of service for a time, and no other provider of ${ids.join(', ')} may serve this request. Try again in ${retryAfterSeconds} s, or name another model.`
  return new GatewayError('service_unavailable', message, {
    retryAfterSeconds,
    metadata: {
      availability: {
        code: 'temporarily_unavailable',
        retryable: true,
        retry_after: retryAfterSeconds,
        requested_models: ids,
        affected_providers: providers,
        excluded_by: [...reasons],
      },
    },
  })
}

/** Reasons for leaving out endpoints, in words for the caller. */
const EXCLUSION_TEXTS: Readonly<Record<string, string>> = {
  data_region: 'none keeps data in the region of the host that the request was sent to',
  allowed_providers: 'provider.only or provider.order excludes all of them',
  ignored_providers: 'provider.ignore excludes all of them',
  'data_policy:zdr': 'provider.zdr asks for zero data retention',
  'data_policy:training': 'provider.data_collection is deny',
  distillable_text: 'provider.enforce_distillable_text is set, but none is known to allow distillation',
  quantization: 'none has a quantization listed in provider.quantizations',
  max_price: 'all cost more than provider.max_price',
  require_parameters: 'provider.require_parameters is set, but none supports all parameters of the request',
  free_variant: 'none is free',
  [CONTEXT_LENGTH]: 'the input and the requested output do not fit into the context',
  [MAX_OUTPUT_TOKENS]: 'the request asks for more output than the model can write',
  [INPUT_MODALITIES]: 'the model does not accept all kinds of input in the request',
  service_tier: 'all belong to a service tier that the request does not ask for',
  [BYOK_REQUIRED]: 'the workspace uses only its own provider credentials, and none applies',
  [NO_SHARED_KEY]: 'no provider key is configured',
}

/** Fields that the error for a lossy request names. */
const MAX_SHOWN_LOSSES = 10

/** The error for a request that would lose something at every endpoint that is left, although its caller requires all. */
export function tooLossy(
  lossy: readonly LossyCandidate[],
  clientRequest: Pick<ClientRequest, 'inOwnNames' | 'request'>,
): GatewayError {
  const ids = [...new Set(lossy.map(({ candidate }) => candidate.endpoint.modelId))]
  const losses = new Map<string, string>()
  for (const { candidate, changes } of lossy)
    for (const { field, action, reason } of reportedChanges(changes.filter(isLoss), clientRequest))
      if (!losses.has(field))
        losses.set(field, `${field} (${action} for ${candidate.endpoint.provider.name}: ${reason})`)
  const fields = [...losses.keys()]
  const lossText = [...losses.values()].slice(0, MAX_SHOWN_LOSSES).join('; ')
  const moreText = losses.size > MAX_SHOWN_LOSSES ? `; and ${losses.size - MAX_SHOWN_LOSSES} more` : ''
  const message = `No endpoint of ${ids.join(', ')} accepts the whole request, but provider.require_parameters is set: ${lossText}${moreText}. Leave these fields out, or leave out provider.require_parameters.`
  const detail = `changed on the way: ${fields.slice(0, MAX_SHOWN_LOSSES).join(', ')}${moreText}`
  const constraint = { field: fields[0] ?? '', detail }
  return unavailable('constraint_filtered', message, ids, ['require_parameters'], constraint)
}

/**
 * The error for a request that needs more than any endpoint has; null if endpoints are left out for other reasons too.
 * Only the length of the context is the error even then.
 */
function unmetNeed(models: readonly Model[], needs: Needs, reasons: readonly string[]): GatewayError | null {
  const [first, second] = reasons.filter(name => name !== NO_SHARED_KEY)
  // Length is the last of the filters: an endpoint that it leaves out would have served the request otherwise.
  const reason = reasons.includes(CONTEXT_LENGTH) ? CONTEXT_LENGTH : second === undefined ? first : undefined
  if (!needs.isCompared || reason === undefined) return null
  const ids = models.map(model => model.id)
  const names = ids.join(', ')
  const endpoints = models.flatMap(model => model.endpoints)
  if (reason === CONTEXT_LENGTH) {
    const detail = `the longest context of ${names} that this request may use has ${needs.longestRefused} tokens`
    const output = needs.output === 0 ? '' : ` alongside ${needs.output} tokens of output`
    const message = `The input does not fit${output}: ${detail}. Choose a model with a longer context${output === '' ? '' : ' or ask for less output'}. Shorten the input, or add the context-compression plugin.`
    return unavailable('context_length_exceeded', message, ids, reasons, { field: 'input', detail })
  }
  if (reason === MAX_OUTPUT_TOKENS) {
    const largestLimit = Math.max(...endpoints.map(({ maxOutputTokens }) => maxOutputTokens ?? 0))
    const detail = `no endpoint of ${names} writes more than ${largestLimit} tokens`
    const message = `max_output_tokens: asks for ${needs.output} tokens of output, but ${detail}. Ask for at most ${largestLimit}.`
    return unavailable('invalid_request', message, ids, reasons, { field: 'max_output_tokens', detail })
  }
  if (reason !== INPUT_MODALITIES) return null
  const missingModalities = needs.modalities.filter(
    modality => !models.some(model => statedInput(model)?.includes(modality)),
  )
  const kinds = (missingModalities.length === 0 ? needs.modalities : missingModalities).join(' and ')
  const detail = `${names} ${ids.length === 1 ? 'does' : 'do'} not accept ${kinds} input`
  const fileAdvice = missingModalities.includes('file')
    ? ', or read PDFs as text with the file-parser plugin'
    : ''
  const message = `No endpoint may serve this request, because ${detail}. Leave that part out, choose a model whose input_modalities include it (GET /v1/models?input_modalities=${needs.modalities.join(',')})${fileAdvice}.`
  return unavailable('constraint_filtered', message, ids, reasons, { field: 'input', detail })
}

function noKey(ids: readonly string[], excludedBy: ReadonlySet<string>): string {
  return excludedBy.has(BYOK_REQUIRED)
    ? `This workspace uses only its own provider credentials for ${ids.join(', ')}, and none of them is enabled and allowed for this model, API key and user.`
    : `No provider key is configured for ${ids.join(', ')}. Add a BYOK credential for a provider that serves ${ids.length === 1 ? 'it' : 'one of them'}.`
}

/** Availability codes with a more precise error, or an error in the words of a dialect. */
const AVAILABILITY_CODES: Partial<Readonly<Record<FailureCode, FailureCode>>> = {
  context_length_exceeded: 'constraint_filtered',
  invalid_request: 'constraint_filtered',
  unknown_model: 'model_not_found',
}

function unavailable(
  code: FailureCode,
  message: string,
  requestedModels: readonly string[],
  excludedBy: readonly string[],
  constraint?: { readonly field: string; readonly detail: string },
): GatewayError {
  return new GatewayError(code, message, {
    metadata: {
      availability: {
        code: AVAILABILITY_CODES[code] ?? code,
        retryable: false,
        requested_models: requestedModels,
        ...(excludedBy.length === 0 ? {} : { excluded_by: excludedBy }),
        ...(constraint === undefined ? {} : { constraint }),
      },
    },
  })
}
