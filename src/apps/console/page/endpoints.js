/** Models by endpoint: the health, speed and price of each endpoint. */
import { count, duration, percent, perMillion } from './format.js'
import { html, useEffect, useState } from './html.js'
import { KeyCheck } from './key-check.js'
import { Chip, Empty, Filter, RowButton, Table, useView, Waiting } from './parts.js'
import { PauseDialog, Paused } from './pauses.js'

/** Conditions of an endpoint with one key, the shared one or a BYOK credential: the tone, and the meaning. */
const CONDITIONS = {
  steady: ['good', 'Works normally'],
  shaky: ['warn', '5 to 20 % of its attempts fail: others are called first'],
  failing: ['bad', 'More than 20 % of its attempts fail: others are called first'],
  probing: ['warn', 'Circuit breaker open: the next request tests it'],
  limited: ['warn', 'Not used now: rate limit of the provider'],
  blocked: ['bad', 'Not used now: circuit breaker open'],
  paused: ['warn', 'Out of service: an operator has paused its provider'],
  untried: ['plain', 'Not called since the start'],
}

const FILTER_WAIT_MS = 250

const COLUMNS = [
  'Model',
  'Endpoint',
  'Health',
  { name: 'Uptime 30 min', number: true },
  { name: 'First token p50', number: true },
  { name: 'p90', number: true },
  { name: 'Tokens/s', number: true },
  { name: '$/M input', number: true },
  { name: '$/M output', number: true },
  { name: '$/M cached', number: true },
  { name: 'Context', number: true },
  '',
]

/** The reason why an endpoint has no value. */
const NO_UPTIME = 'Shown from 100 attempts in 30 minutes on'
const NO_SPEED = 'No data in the last 30 minutes'

/** @param asked the filter in the URL, as linked from other views */
export function Models({ calls, asked: begin = '' }) {
  const [filter, setFilter] = useState(begin)
  const [appliedFilter, setAppliedFilter] = useState(begin)
  useEffect(() => {
    const timer = setTimeout(() => setAppliedFilter(filter), FILTER_WAIT_MS)
    return () => clearTimeout(timer)
  }, [filter])
  const { document, error } = useView(calls, 'models', { filter: appliedFilter })
  const [endpointToTry, setEndpointToTry] = useState(null)
  const [providerToPause, setProviderToPause] = useState(null)
  const [version, setVersion] = useState(0)

  return html`
    <section aria-label="Models">
      <div class="bar">
        <${Filter} label="Filter" hint="model or provider" value=${filter} onValue=${setFilter} />
        ${
          document !== null &&
          html`<span class="dim" role="status">${document.data.length} of ${document.total_count} models</span>`
        }
      </div>
      <${Paused} calls=${calls} version=${version} onChanged=${() => setVersion(version + 1)} />
      ${document === null ? html`<${Waiting} error=${error} />` : html`<${EndpointTable} document=${document} asked=${appliedFilter} onTry=${setEndpointToTry} onPause=${setProviderToPause} />`}
      ${document !== null && document.wildcards.length > 0 && html`<${Wildcards} wildcards=${document.wildcards} onTry=${setEndpointToTry} />`}
      ${
        endpointToTry !== null &&
        html`<${KeyCheck} calls=${calls} provider=${endpointToTry.provider} model=${endpointToTry.model} onClose=${() => setEndpointToTry(null)} />`
      }
      ${
        providerToPause !== null &&
        html`
          <${PauseDialog}
            calls=${calls}
            provider=${providerToPause}
            onChanged=${() => setVersion(version + 1)}
            onClose=${() => setProviderToPause(null)}
          />
        `
      }
    </section>
  `
}

/** Rows for all ids with one prefix. Used models of such a row have the same endpoints. */
function Wildcards({ wildcards, onTry }) {
  return html`
    <h2>Wildcards</h2>
    <p class="dim">Each covers all ids that begin with the text before the star and have no row of their own.</p>
    <${Table} label="Wildcards" columns=${['Ids', 'Endpoint', 'Name at the provider', { name: '$/M input', number: true }, { name: '$/M output', number: true }, '']}>
      ${wildcards.flatMap(({ id, endpoints }) =>
        endpoints.map(
          ({ provider, upstream_model: model, prices }, index) => html`
            <tr key=${`${id} ${index}`}>
              <th scope="row">${id}</th>
              <td>${provider}</td>
              <td class="mono">${model}</td>
              <td class="number">${prices === null ? 'not known' : perMillion(prices.prompt)}</td>
              <td class="number">${prices === null ? 'not known' : perMillion(prices.completion)}</td>
              <td class="actions"><${TryButton} provider=${provider} name=${id} onTry=${onTry} /></td>
            </tr>
          `,
        ),
      )}
    <//>
  `
}

function TryButton({ provider, name, model, onTry }) {
  const subject = `of ${provider} for ${name}`
  return html`<${RowButton} does="Try key" of=${subject} onClick=${() => onTry({ provider, model })} />`
}

function EndpointTable({ document: { data, wildcards }, asked, onTry, onPause }) {
  if (data.length === 0) {
    if (wildcards.length > 0) return null
    return html`<${Empty}>
      ${
        asked === ''
          ? 'The catalogue is empty. Add rows under "models" in the configuration file, or let a provider list its own.'
          : 'No model matches the filter.'
      }
    <//>`
  }
  return html`
    <${Table} label="Models and their endpoints" columns=${COLUMNS}>
      ${data.flatMap(({ id, context_length: context, endpoints }) =>
        endpoints.map(
          (endpoint, index) =>
            html`<${Row} key=${`${id} ${index}`} id=${id} context=${context} endpoint=${endpoint} first=${index === 0} onTry=${onTry} onPause=${onPause} />`,
        ),
      )}
    <//>
  `
}

function Row({ id, context, endpoint, first, onTry, onPause }) {
  const [tone, meaning] = CONDITIONS[endpoint.condition] ?? ['plain', '']
  const ownConditions = Object.entries(endpoint.own_conditions)
  const { first_token_ms: latency, tokens_per_second: speed, uptime_last_30m: uptime, prices } = endpoint
  return html`
    <tr>
      <th scope="row" class=${first ? '' : 'again'}>${id}</th>
      <td>
        ${endpoint.provider}
        ${endpoint.region !== null && html` <${Chip} title="Data region">${endpoint.region}<//>`}
        ${endpoint.service_tier !== null && html` <${Chip} title="Service tier">${endpoint.service_tier}<//>`}
      </td>
      <td>
        <${Chip} tone=${tone} title=${meaning}>${endpoint.condition}<//>
        ${
          tone !== 'good' &&
          tone !== 'plain' &&
          html`<small class="why dim">Shared key: ${meaning[0].toLowerCase()}${meaning.slice(1)}. <a href=${`#/requests?${encodeURIComponent(endpoint.provider)}`}>Its requests</a></small>`
        }
        ${
          ownConditions.length > 0 &&
          html`<small class="why dim">BYOK credentials: ${ownConditions.map(([condition, number]) => `${number} ${condition}`).join(', ')}</small>`
        }
      </td>
      <td class="number" title=${uptime === null ? NO_UPTIME : undefined}>
        ${uptime === null ? '< 100 attempts' : percent(uptime / 100)}
      </td>
      <td class="number" title=${latency === null ? NO_SPEED : undefined}>${duration(latency?.p50)}</td>
      <td class="number">${duration(latency?.p90)}</td>
      <td class="number" title=${speed === null ? NO_SPEED : undefined}>${speed === null ? '–' : Math.round(speed.p50)}</td>
      <td class="number">${prices === null ? 'not known' : perMillion(prices.prompt)}</td>
      <td class="number">${prices === null ? 'not known' : perMillion(prices.completion)}</td>
      <td class="number">${prices?.cache_read == null ? '–' : perMillion(prices.cache_read)}</td>
      <td class="number">${count(context)}</td>
      <td class="actions">
        <${TryButton} provider=${endpoint.provider} name=${id} model=${id} onTry=${onTry} />
        ${
          endpoint.condition !== 'paused' &&
          html`<${RowButton} does="Pause" of=${`provider ${endpoint.provider} of ${id}`} onClick=${() => onPause(endpoint.provider)} />`
        }
      </td>
    </tr>
  `
}
