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
    ...callsOfTools(explanation),
    ...otherEndpoints(explanation),
    ...footnotes(explanation),
  ]
}

/** Removes contradictions: a called endpoint was not excluded, and a skipped one was reached. */
function consistent(explanation: Explanation): Explanation {
  const { attempts, passed_over: passedOver, not_reached: notReached, excluded } = explanation
  const isApart = (way: ExplainedWay, called: readonly ExplainedWay[]): boolean =>
    !called.some(calledWay => isSame(calledWay, way))
  return {
    ...explanation,
    not_reached: notReached.filter(way => isApart(way, [...attempts, ...passedOver])),
    excluded: excluded.filter(way => isApart(way, [...attempts, ...passedOver, ...notReached])),
  }
}

function isSame(a: ExplainedWay, b: ExplainedWay): boolean {
  return a.provider === b.provider && a.model === b.model && a.credential === b.credential
}

const LIMIT_TEXTS: Readonly<Record<LimitName, string>> = {
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
    const answering = attempts.findLast(attempt => attempt.error === null && !attempt.outrun)
    const key = answering === undefined ? '' : keyOf(answering, explanation)
    const origin = model === null ? '' : ` by ${provider ?? 'a provider'} with ${model}${key}`
    return [outcome === 'completed' ? `Answered${origin}.` : `Ended as ${outcome}${origin}.`]
  }
  const verb = attempts.length === 0 && inner.length === 0 ? 'Refused before any model was called' : 'Failed'
  return [
    `${verb}${code}: ${error.code}.`,
    ...(error.message === null ? [] : [`Message: ${error.message}`]),
    ...(error.field === null ? [] : [`Field: ${error.field}`]),
    ...(error.limit === null ? [] : [`Limit: ${LIMIT_TEXTS[error.limit]}.`]),
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

const CHOICE_TEXTS: Readonly<Record<EndpointChoice, string>> = {
  only: 'it was the only endpoint of its model that could serve the request',
  own_key: 'BYOK credentials of the workspace come first',
  pinned: 'the conversation stays with it (session affinity)',
  probe: 'its breaker was open, and this request tested whether it works again',
  preference: 'the request sets the order (provider.order or provider.sort)',
  price: 'it was picked at random among healthy endpoints, weighted by price (routing.loadBalancing)',
  order: 'it is the first one in the order of the catalogue',
  plugin: 'a plugin or router put it first',
}

/** The texts for a first choice that was not called because its breaker was open or its provider asked for a pause. */
const UNCALLED_CHOICE_TEXTS: Readonly<Partial<Record<EndpointChoice, string>>> = {
  probe: 'it came first in the order, although its breaker was open',
  price: 'it was picked at random, weighted by price (routing.loadBalancing)',
}

/** A request that the gateway itself makes for a rollout names no route, so it has no text. */
const ARM_TEXTS: Readonly<Partial<Record<NonNullable<Explanation['rollout']>, string>>> = {
  base: ', and not to the candidate of its rollout',
  candidate: ', the candidate of its rollout',
}

function firstChoiceOf({ first, attempts, passed_over: passedOver, not_reached: notReached }: Explanation) {
  return first ?? passedOver[0] ?? attempts[0] ?? notReached[0]
}

function choices(explanation: Explanation): string[] {
  const { choice, rather, attempts } = explanation
  const first = firstChoiceOf(explanation)
  if (choice === null || first === undefined) return []
  const isCalled = attempts.some(attempt => isSame(attempt, first))
  const reason = (isCalled ? undefined : UNCALLED_CHOICE_TEXTS[choice]) ?? CHOICE_TEXTS[choice]
  const { strategy, requested_model: requestedModel, rollout } = explanation
  const arm = rollout == null ? '' : (ARM_TEXTS[rollout] ?? '')
  const route = strategy === 'route' ? `The route ${requestedModel} led to ${first.model}${arm}. ` : ''
  const otherwise =
    rather === null || isSame(rather, first)
      ? ''
      : ` Otherwise it would have been ${endpointText(rather, explanation)}.`
  return [`${route}First choice ${endpointText(first, explanation)}: ${reason}.${otherwise}`]
}

function failovers(explanation: Explanation): string[] {
  const { attempts, passed_over: passedOver, tools } = explanation
  const lines = passedOver.map(candidate => {
    const reason =
      candidate.state === 'rate_limited'
        ? 'its provider asked for a pause (rate limit)'
        : 'its breaker was open'
    const name = endpointText(candidate, explanation)
    const beginning = attempts.some(attempt => isSame(attempt, candidate))
      ? `Passed over ${name} in another turn`
      : `Not called ${name}`
    return `${beginning}: ${reason}, for another ${ms(candidate.wait_ms)}.`
  })
  for (const [index, attempt] of attempts.entries()) {
    const next = attempts[index + 1]
    const name = endpointText(attempt, explanation)
    if (attempt.outrun) lines.push(`Hedged: ${name} was silent, and the other attempt answered first.`)
    else if (attempt.error !== null)
      lines.push(
        `Attempt ${index + 1} at ${name} ${endOf(attempt)} ${nextOf(attempt, next, explanation)}`.trim(),
      )
    else if (next !== undefined && next.turn !== attempt.turn)
      lines.push(
        `Attempt ${index + 2} asked ${endpointText(next, explanation)} ${tools.length === 0 ? 'to continue' : 'with the tool results'}.`,
      )
  }
  return lines
}

type Attempt = Explanation['attempts'][number]

/** The end of an attempt as a sentence. */
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
    action => action.type !== 'server_tools' || action.summary !== undefined || action.action !== undefined,
  )
  return shownActions.map(({ type, name, guardrail_id, action, summary }) => {
    const owner =
      type === 'guardrail' ? `Guardrail ${guardrail_id ?? ''} (${name})` : `${capitalize(type)} ${name}`
    return `${owner}: ${summary ?? action ?? 'took part'}.`
  })
}

const MAX_SHOWN_CHANGES = 10

function changes({ changes: reported }: Explanation): string[] {
  if (reported == null || reported.length === 0) return []
  const texts = reported
    .slice(0, MAX_SHOWN_CHANGES)
    .map(({ field, action, reason }) => `${action} ${field} (${reason})`)
  const remainder =
    reported.length > MAX_SHOWN_CHANGES ? `; and ${reported.length - MAX_SHOWN_CHANGES} more` : ''
  return [`The request was changed for the provider: ${texts.join('; ')}${remainder}.`]
}

function callsOfTools({ tools, inner_calls: inner }: Explanation): string[] {
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
const FILTER_TEXTS: Readonly<Record<string, string>> = {
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

function otherEndpoints(explanation: Explanation): string[] {
  const {
    attempts,
    excluded,
    passed_over: passedOver,
    not_reached: notReached,
    skipped_models: skippedModels,
  } = explanation
  // Nothing was called, so the first choice is among the endpoints that were not reached.
  const isNothingCalled = attempts.length === 0 && passedOver.length === 0
  const first = firstChoiceOf(explanation)
  const reasonOf = (way: ExplainedWay): string => {
    if (isNothingCalled) return 'the request ended before any endpoint was called'
    const isFirst = first !== undefined && isSame(first, way)
    return isFirst ? 'it could not be called when its turn came' : 'it came later in the order'
  }
  return [
    ...excluded.map(
      candidate =>
        `Left out ${endpointText(candidate, explanation)}: ${FILTER_TEXTS[candidate.by] ?? candidate.by} [${candidate.by}].`,
    ),
    ...notReached.map(candidate => {
      const open = candidate.breaker_open ? ', and its breaker was open' : ''
      return `Not reached ${endpointText(candidate, explanation)}: ${reasonOf(candidate)}${open}.`
    }),
    ...skippedModels.map(
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
  // A usage record does not say which credential it was.
  if (credential === 'own') return ' (own credential)'
  if (credential !== undefined) return ` (own credential ${credential})`
  const { attempts, passed_over: passedOver, not_reached: notReached, excluded } = explanation
  const hasOwnCredential = [attempts, passedOver, notReached, excluded]
    .flat()
    .some(candidate => candidate.provider === provider && candidate.credential !== undefined)
  return hasOwnCredential ? ' (shared key)' : ''
}

function ms(value: number): string {
  return value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${Math.round(value)} ms`
}

function capitalize(word: string): string {
  return `${word.charAt(0).toUpperCase()}${word.slice(1).replaceAll('_', ' ')}`
}
