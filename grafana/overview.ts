/** The first screen of the dashboard: is it healthy, is it fast, what does it cost; one column each. Pure. */
import { LIVE, OWN_STAGES, quantile, quantiles, type Row, share, sumRate } from './panel.ts'

export const OVERVIEW: Row = {
  title: 'Healthy? Fast? What does it cost?',
  isOpen: true,
  panels: [
    {
      title: 'Success rate',
      description:
        'Requests that did not fail, of all finished ones, without those of batches. Red below the objective of the alert rules, 99.9 %.',
      unit: 'percentunit',
      kind: 'stat',
      width: 4,
      height: 4,
      floor: 0.999,
      queries: [
        {
          expr: `1 - ${share(sumRate('gateway_requests_total', '', `outcome="failed",${LIVE}`), sumRate('gateway_requests_total', '', LIVE))}`,
          legend: 'success',
        },
      ],
    },
    {
      title: 'Shed requests',
      description:
        'Requests per second that were refused before they were read, because a thread was overloaded or a key exceeded its share.',
      unit: 'reqps',
      kind: 'stat',
      width: 4,
      height: 4,
      alarm: 1,
      queries: [{ expr: sumRate('gateway_shed_total'), legend: 'shed' }],
    },
    {
      title: 'Time to first token, p95',
      description: 'From the request line to the first content handed to the client, now.',
      unit: 's',
      kind: 'stat',
      width: 4,
      height: 4,
      queries: [{ expr: quantile(0.95, 'gateway_time_to_first_token_seconds'), legend: 'p95' }],
    },
    {
      title: 'Gateway overhead, mean',
      description:
        'Mean time per exchange in the stages in which the gateway itself is at work: parse, auth, guard, route, admit, encode and flush.',
      unit: 's',
      kind: 'stat',
      width: 4,
      height: 4,
      alarm: 0.01,
      queries: [
        {
          expr: `${sumRate('gateway_overhead_seconds_sum', '', `stage=~"${OWN_STAGES}"`)} / ${sumRate('gateway_overhead_seconds_count', '', 'stage="parse"')}`,
          legend: 'mean',
        },
      ],
    },
    {
      title: 'Cost per hour',
      description: 'USD per hour at the prices of the catalogue, at the present rate.',
      unit: 'currencyUSD',
      kind: 'stat',
      width: 4,
      height: 4,
      queries: [{ expr: `3600 * ${sumRate('gateway_cost_usd_total')}`, legend: 'cost' }],
    },
    {
      title: 'Cost per million tokens',
      description: 'USD per million tokens, read and written together: what the present mix of models costs.',
      unit: 'currencyUSD',
      kind: 'stat',
      width: 4,
      height: 4,
      queries: [
        {
          expr: `1e6 * ${sumRate('gateway_cost_usd_total')} / ${sumRate('gateway_tokens_total')}`,
          legend: 'cost',
        },
      ],
    },
    {
      title: 'Requests by outcome',
      description:
        'Finished requests per second. Failed ones are the gateway’s or a provider’s doing, refused ones the client’s; aborted means that the client left first.',
      unit: 'reqps',
      stacked: true,
      queries: [{ expr: sumRate('gateway_requests_total', 'outcome'), legend: '{{outcome}}' }],
    },
    {
      title: 'Time to first token',
      description: 'From the request line to the first content handed to the client.',
      unit: 's',
      queries: quantiles('gateway_time_to_first_token_seconds'),
    },
    {
      title: 'Cost per hour, top ten models',
      description: 'USD per hour at the prices of the catalogue, at the present rate.',
      unit: 'currencyUSD',
      stacked: true,
      queries: [
        { expr: `topk(10, 3600 * ${sumRate('gateway_cost_usd_total', 'model')})`, legend: '{{model}}' },
      ],
    },
    {
      title: 'Failed upstream attempts by provider and error',
      description:
        'Attempts per second that did not end well, by provider and error code; not those whose client left.',
      unit: 'reqps',
      queries: [
        {
          expr: sumRate(
            'gateway_upstream_requests_total',
            'provider, outcome',
            'outcome!~"ok|client_closed"',
          ),
          legend: '{{provider}} {{outcome}}',
        },
      ],
    },
    {
      title: 'Mean time per request by stage',
      description: 'Mean seconds per exchange in each stage; together they are its mean duration.',
      unit: 's',
      stacked: true,
      queries: [
        {
          expr: `${sumRate('gateway_overhead_seconds_sum', 'stage')} / on() group_left() ${sumRate('gateway_overhead_seconds_count', '', 'stage="parse"')}`,
          legend: '{{stage}}',
        },
      ],
    },
    {
      title: 'Tokens per second',
      description: 'Tokens per second that models read (input) and wrote (output).',
      unit: 'short',
      queries: [{ expr: sumRate('gateway_tokens_total', 'direction'), legend: '{{direction}}' }],
    },
  ],
}
