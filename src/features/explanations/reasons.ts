/** The reasons in an explanation, as sentences for people, the most important one first. Pure. */
import { FAILURES, type FailureCode, type LimitName } from '../../base/errors.ts'
import type { EndpointChoice } from '../../base/metrics/table.ts'
import type { ExplainedWay, Explanation } from './explanation.ts'

/**
 * The outcome in one sentence, then one sentence per reason. No two sentences about an endpoint contradict each other.
 */
export function reasonsOf(document: Explanation): string[] {
  const explanation = consistent(document)
  return [
    ...outcomeOf(explanation),
    ...waits(explanation),
    ...choices(explanation),
    ...failovers(explanation),
    ...guards(explanation),
    ...changes(explanation),
    ...work(explanation),
    ...others(explanation),
    ...footnotes(explanation),
  ]
}

/** Removes contradictions: a called endpoint was not excluded, and a skipped one was reached. */
function consistent(explanation: Explanation): Explanation {
  const { attempts, passed_over: passed, not_reached: later, excluded } = explanation
  const isApart = (way: ExplainedWay, others: readonly ExplainedWay[]): boolean =>
    !others.some(other => isSame(other, way))
  return {
    ...explanation,
    not_reached: later.filter(way => isApart(way, [...attempts, ...passed])),
    excluded: excluded.filter(way => isApart(way, [...attempts, ...passed, ...later])),
  }
}

function isSame(a: ExplainedWay, b: ExplainedWay): boolean {
  return a.provider === b.provider && a.model === b.model && a.credential === b.credential
}

const LIMITS: Readonly<Record<LimitName, string>> = {
  requests_per_minute:
    'requests per minute (`rate_limit` of the key, its workspace or the end user, or quotas.requestsPerMinute)',
  tokens_per_minute:
    'tokens per minute (`rate_limit` of the key, its workspace or the end user, or quotas.tokensPerMinute)',
  parallel: 'requests at once (`rate_limit` of the key, its workspace or the end user)',
  key_limit: "the API key's spending limit",
  budget: "a guardrail's budget",
  credits: "the organization's credits",
  open_requests_of_key: "the API key's open requests (limits.openPerKey)",
  bytes_of_key: 'the memory that the requests of one API key may hold',
  unread_answers_of_key: "the answer bytes that the API key's clients have not read",
  load: 'the load that a thread can handle (limits)',
}

function outcomeOf(explanation: Explanation): string[] {
  const { outcome, error, status, model, provider, attempts, inner_calls: inner } = explanation
  const code = status === null ? '' : ` with ${status}`
  if (outcome === 'aborted') return ['The caller disconnected before the end of the answer.']
  if (error === null) {
    const last = attempts.findLast(each => each.error === null && !each.outrun)
    const key = last === undefined ? '' : keyOf(last, explanation)
    const at = model === null ? '' : ` by ${provider ?? 'a provider'} with ${model}${key}`
    return [outcome === 'completed' ? `Answered${at}.` : `Ended as ${outcome}${at}.`]
  }
  const verb = attempts.length === 0 && inner.length === 0 ? 'Refused before any model was called' : 'Failed'
  return [
    `${verb}${code}: ${error.code}.`,
    ...(error.message === null ? [] : [`Message: ${error.message}`]),
    ...(error.field === null ? [] : [`Field: ${error.field}`]),
    ...(error.limit === null ? [] : [`Limit: ${LIMITS[error.limit]}.`]),
    ...(error.retry_after_seconds === null ? [] : [`Retry after ${error.retry_after_seconds} s.`]),
    ...(error.guardrail_id === null ? [] : [`Guardrail: ${error.guardrail_id}`]),
    ...(error.cause === null ? [] : [`Cause: ${error.cause}`]),
    ...(error.code === 'deadline_exceeded'
      ? ['The total time of a request (timeouts.requestMs) had passed.']
      : []),
  ]
}

function waits({ stages_ms: stages, error }: Explanation): string[] {
  const queue = stages?.queue
  if (queue === undefined) return []
  const end =
    error?.limit === 'open_requests_of_key' ? 'and none of them ended in time' : 'then one of them ended'
  return [
    `It waited ${ms(queue)} in the queue, because its API key had reached its limit of open requests (limits.openPerKey); ${end}.`,
  ]
}

const CHOICES: Readonly<Record<EndpointChoice, string>> = {
  only: 'it was the only endpoint of its model that could serve the request',
  own_key: 'BYOK credentials of the workspace come first',
  pinned: 'the conversation stays with it (session affinity)',
  probe: 'its breaker was open, and this request tested whether it works again',
  preference: 'the request sets the order (provider.order or provider.sort)',
  price: 'it was picked at random among healthy endpoints, weighted by price (routing.loadBalancing)',
  order: 'it is the first one in the order of the catalogue',
  plugin: 'a plugin or router put it first',
}

/** The sentences for an endpoint that was not called because its breaker was open or its provider asked for a pause. */
const UNCALLED: Readonly<Partial<Record<EndpointChoice, string>>> = {
  probe: 'it came first in the order, although its breaker was open',
  price: 'it was picked at random, weighted by price (routing.loadBalancing)',
}

/** Requests that the gateway itself makes for a rollout name no route. */
const ARMS: Readonly<Partial<Record<NonNullable<Explanation['rollout']>, string>>> = {
  base: ', and not to the candidate of its rollout',
  candidate: ', the candidate of its rollout',
}

function firstOf({ first, attempts, passed_over: passed, not_reached: later }: Explanation) {
  return first ?? passed[0] ?? attempts[0] ?? later[0]
}

function choices(explanation: Explanation): string[] {
  const { choice, rather, attempts } = explanation
  const first = firstOf(explanation)
  if (choice === null || first === undefined) return []
  const isCalled = attempts.some(each => isSame(each, first))
  const why = (isCalled ? undefined : UNCALLED[choice]) ?? CHOICES[choice]
  const { strategy, requested_model: requested, rollout } = explanation
  const arm = rollout == null ? '' : (ARMS[rollout] ?? '')
  const route = strategy === 'route' ? `The route ${requested} led to ${first.model}${arm}. ` : ''
  const without =
    rather === null || isSame(rather, first)
      ? ''
      : ` Otherwise it would have been ${endpointText(rather, explanation)}.`
  return [`${route}First choice ${endpointText(first, explanation)}: ${why}.${without}`]
}

function failovers(explanation: Explanation): string[] {
  const { attempts, passed_over: passed, tools } = explanation
  const lines = passed.map(each => {
    const why =
      each.state === 'rate_limited' ? 'its provider asked for a pause (rate limit)' : 'its breaker was open'
    const name = endpointText(each, explanation)
    const beginning = attempts.some(attempt => isSame(attempt, each))
      ? `Passed over ${name} in another turn`
      : `Not called ${name}`
    return `${beginning}: ${why}, for another ${ms(each.wait_ms)}.`
  })
  for (const [at, attempt] of attempts.entries()) {
    const next = attempts[at + 1]
    const name = endpointText(attempt, explanation)
    if (attempt.outrun) lines.push(`Hedged: ${name} was silent, and the other attempt answered first.`)
    else if (attempt.error !== null)
      lines.push(
        `Attempt ${at + 1} at ${name} ${endOf(attempt)} ${nextOf(attempt, next, explanation)}`.trim(),
      )
    else if (next !== undefined && next.turn !== attempt.turn)
      lines.push(
        `Attempt ${at + 2} asked ${endpointText(next, explanation)} ${tools.length === 0 ? 'to continue' : 'with the tool results'}.`,
      )
  }
  return lines
}

type Attempt = Explanation['attempts'][number]

/** An attempt may end because of its provider, or of other causes. */
function endOf({ error, status, cause }: Attempt): string {
  if (error === 'client_closed') return 'ended because the caller disconnected.'
  if (error === 'deadline_exceeded') return 'ended because the total time of the request had passed.'
  if (error === 'permission_denied' && status === 200) return 'was answered; a guardrail blocked the reply.'
  const reply = status === null ? error : `${status} ${error}`
  return `failed (${reply}${cause === null ? '' : `, ${cause}`}).`
}

function nextOf({ error }: Attempt, next: Attempt | undefined, explanation: Explanation): string {
  if (next?.continued_at !== undefined)
    return `${endpointText(next, explanation)} continued the answer, after ${next.continued_at} characters.`
  if (next !== undefined) return `Next: ${endpointText(next, explanation)}.`
  if (error === null || !Object.hasOwn(FAILURES, error)) return ''
  const { retry } = FAILURES[error as FailureCode]
  if (retry === 'never') return ''
  return explanation.not_reached.length === 0
    ? 'No other endpoint was left.'
    : 'No other endpoint was called.'
}

function guards({ actions }: Explanation): string[] {
  // Actions without a description are left out, because the tools below say more.
  const shownActions = actions.filter(
    each => each.type !== 'server_tools' || each.summary !== undefined || each.action !== undefined,
  )
  return shownActions.map(({ type, name, guardrail_id, action, summary }) => {
    const owner =
      type === 'guardrail' ? `Guardrail ${guardrail_id ?? ''} (${name})` : `${capital(type)} ${name}`
    return `${owner}: ${summary ?? action ?? 'took part'}.`
  })
}

/** The sentence names this many. */
const CHANGES_SHOWN = 10

function changes({ changes: all }: Explanation): string[] {
  if (all == null || all.length === 0) return []
  const shown = all
    .slice(0, CHANGES_SHOWN)
    .map(({ field, action, reason }) => `${action} ${field} (${reason})`)
  const more = all.length > CHANGES_SHOWN ? `; and ${all.length - CHANGES_SHOWN} more` : ''
  return [`The request was changed for the provider: ${shown.join('; ')}${more}.`]
}

function work({ tools, inner_calls: inner }: Explanation): string[] {
  return [
    ...tools.map(
      ({ tool, start_ms, end_ms, outcome }) => `Tool ${tool}: ${outcome} after ${ms(end_ms - start_ms)}.`,
    ),
    ...inner.map(({ id, model, error }) => {
      const end = error === null ? 'answered' : `failed (${error})`
      return `Inner call ${id}: ${model ?? 'no model'} ${end}.`
    }),
  ]
}

/** The reason why a candidate was excluded, by the filter's name. */
const FILTERS: Readonly<Record<string, string>> = {
  data_region: 'it does not keep data in the region of the request host',
  allowed_providers: 'provider.only or provider.order leaves it out',
  ignored_providers: 'provider.ignore names it',
  'data_policy:zdr': 'it retains data, but provider.zdr excludes endpoints that do',
  'data_policy:training': 'it may use data, but provider.data_collection is deny',
  distillable_text: 'it is not known to allow distillation, but provider.enforce_distillable_text is set',
  quantization: 'its quantization is not in provider.quantizations',
  max_price: 'it costs more than provider.max_price',
  require_parameters:
    'it lacks a parameter, or takes the request only with changes, but provider.require_parameters is set',
  free_variant: 'it is not free',
  context_length: 'its context is too short',
  max_output_tokens: 'it cannot write as much as max_output_tokens',
  input_modalities: 'it does not accept all kinds of input in the request',
  service_tier: 'it belongs to a service tier that was not requested',
  provider_paused: 'an operator has taken its provider out of service for a time',
  byok_required: 'the workspace allows only its own credentials here',
  no_shared_key: 'no provider key is configured',
  unknown_price: 'its price is not known, but spending limits apply',
  credential_restricted: 'the credential is for other models, keys or users',
  other_service_tier: 'another endpoint has the requested service tier',
  fewer_parameters: "another endpoint supports more of the request's parameters",
  no_json_object: 'another endpoint has a JSON mode',
  probably_too_short: 'the request probably fits another endpoint better',
  'guardrail:allowed_models': 'a guardrail allows only other models',
  'guardrail:ignored_models': 'a guardrail rules out the model',
  'guardrail:allowed_providers': 'a guardrail allows only other providers',
  'guardrail:ignored_providers': 'a guardrail rules out the provider',
  'guardrail:zdr': 'a guardrail requires zero data retention',
  'guardrail:training': 'a guardrail forbids the use of data',
}

function others(explanation: Explanation): string[] {
  const { attempts, excluded, passed_over: passed, not_reached: later, skipped_models: skipped } = explanation
  // The first choice is among them then.
  const isNobodyAsked = attempts.length === 0 && passed.length === 0
  const first = firstOf(explanation)
  const whyOf = (way: ExplainedWay): string => {
    if (isNobodyAsked) return 'the request ended before any endpoint was called'
    const isFirst = first !== undefined && isSame(first, way)
    return isFirst ? 'it could not be called when its turn came' : 'it came later in the order'
  }
  return [
    ...excluded.map(
      each => `Left out ${endpointText(each, explanation)}: ${FILTERS[each.by] ?? each.by} [${each.by}].`,
    ),
    ...later.map(each => {
      const open = each.breaker_open ? ', and its breaker was open' : ''
      return `Not reached ${endpointText(each, explanation)}: ${whyOf(each)}${open}.`
    }),
    ...skipped.map(
      model => `Left out model ${model}, which the request also names: it is not in the catalogue.`,
    ),
  ]
}

const FROM_RECORD =
  'Only the usage record is left: the stages and reasons of this request are not stored, or not yet. They are stored two seconds after the answer.'

function footnotes({ unkept_before: droppedBefore, source, preferences, parent }: Explanation): string[] {
  const fields = Object.entries(preferences).map(([name, value]) => `${name}=${JSON.stringify(value)}`)
  return [
    ...(parent === null ? [] : [`Inner call of the request ${parent}.`]),
    ...(fields.length === 0 ? [] : [`The request asked for provider: ${fields.join(' ')}`]),
    ...(droppedBefore === 0
      ? []
      : [`${droppedBefore} earlier requests from the same key or address have no explanation.`]),
    ...(source === 'whole' ? [] : [FROM_RECORD]),
  ]
}

/** `provider model`, with the credential if there are several. */
function endpointText(way: ExplainedWay, explanation: Explanation): string {
  return `${way.provider} ${way.model}${keyOf(way, explanation)}`
}

function keyOf({ provider, credential }: ExplainedWay, explanation: Explanation): string {
  // A usage record does not contain which of them it was.
  if (credential === 'own') return ' (own credential)'
  if (credential !== undefined) return ` (own credential ${credential})`
  const { attempts, passed_over: passed, not_reached: later, excluded } = explanation
  const hasOwn = [attempts, passed, later, excluded]
    .flat()
    .some(each => each.provider === provider && each.credential !== undefined)
  return hasOwn ? ' (shared key)' : ''
}

function ms(value: number): string {
  return value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${Math.round(value)} ms`
}

function capital(word: string): string {
  return `${word.charAt(0).toUpperCase()}${word.slice(1).replaceAll('_', ' ')}`
}
