/**
 * The dashboard as a table of panels; `npx node grafana/dashboard.ts` writes sluice.json from it. A test holds the
 * two equal, and every query to the metrics the gateway declares.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { OVERVIEW } from './overview.ts'
import type { Panel, Row } from './panel.ts'
import { REQUEST_ROWS } from './request-rows.ts'
import { SYSTEM_ROWS } from './system-rows.ts'

/** The first row is open and fits one screen. */
export const ROWS: readonly Row[] = [OVERVIEW, ...REQUEST_ROWS, ...SYSTEM_ROWS]

const DATASOURCE = { type: 'prometheus', uid: '${datasource}' }
const COLUMNS = 24
const PANEL_HEIGHT = 8

interface Grid {
  readonly x: number
  readonly y: number
  readonly w: number
  readonly h: number
}

/** Panels side by side, in lines that are as high as their first panel. */
function place(panels: readonly Panel[], top: number): { panel: Panel; gridPos: Grid }[] {
  let x = 0
  let y = top
  let height = 0
  return panels.map(panel => {
    const { width: w = 8, height: h = PANEL_HEIGHT } = panel
    if (x + w > COLUMNS) {
      x = 0
      y += height
    }
    if (x === 0) height = h
    const gridPos = { x, y, w, h }
    x += w
    return { panel, gridPos }
  })
}

/** The dashboard as Grafana 10 and later import it. */
export function dashboard(): unknown {
  const panels: unknown[] = []
  let id = 0
  let y = 0
  for (const row of ROWS) {
    const isOpen = row.isOpen === true
    const title = {
      id: ++id,
      type: 'row',
      title: row.title,
      collapsed: !isOpen,
      gridPos: { x: 0, y: y++, w: COLUMNS, h: 1 },
    }
    const placed = place(row.panels, y).map(({ panel, gridPos }) => ({ id: ++id, gridPos, ...drawn(panel) }))
    // Grafana keeps the panels of a folded row within it, and moves what is below when it unfolds.
    panels.push(...(isOpen ? [{ ...title, panels: [] }, ...placed] : [{ ...title, panels: placed }]))
    if (isOpen) y = Math.max(...placed.map(({ gridPos }) => gridPos.y + gridPos.h))
  }
  return {
    uid: 'sluice',
    title: 'Sluice',
    description: 'Is the gateway healthy, is it fast, what does it cost; below, a row for each theme.',
    tags: ['sluice', 'gateway'],
    schemaVersion: 39,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: '30s',
    time: { from: 'now-1h', to: 'now' },
    timezone: 'browser',
    templating: {
      list: [
        { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus', current: {} },
        variable('instance', 'Instance', 'gateway_build_info'),
        variable('provider', 'Provider', 'gateway_upstream_requests_total'),
        variable('model', 'Model', 'gateway_cost_usd_total'),
      ],
    },
    annotations: { list: [] },
    links: [],
    panels,
  }
}

/** A variable with the values of a label, all of them at first. `metric`: has every value. */
function variable(name: string, label: string, metric: string): object {
  const query = `label_values(${metric}, ${name})`
  return {
    name,
    label,
    type: 'query',
    datasource: DATASOURCE,
    definition: query,
    query: { query, refId: `${name}s` },
    refresh: 2,
    sort: 1,
    multi: true,
    includeAll: true,
    allValue: '.*',
    current: { selected: true, text: ['All'], value: ['$__all'] },
  }
}

function drawn({
  title,
  description,
  unit,
  queries,
  kind = 'timeseries',
  stacked,
  alarm,
  floor,
}: Panel): object {
  const steps = [
    ...(floor === undefined
      ? [{ color: 'green', value: null }]
      : [
          { color: 'red', value: null },
          { color: 'green', value: floor },
        ]),
    ...(alarm === undefined ? [] : [{ color: 'red', value: alarm }]),
  ]
  const thresholds = { mode: 'absolute', steps }
  return {
    type: kind,
    title,
    description,
    datasource: DATASOURCE,
    targets: queries.map(({ expr, legend }, index) => ({
      refId: String.fromCharCode(65 + index),
      datasource: DATASOURCE,
      editorMode: 'code',
      expr,
      legendFormat: legend,
      range: kind === 'timeseries',
      instant: kind === 'stat',
    })),
    ...(kind === 'stat'
      ? {
          fieldConfig: { defaults: { unit, thresholds }, overrides: [] },
          options: { reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false }, textMode: 'auto' },
        }
      : {
          fieldConfig: {
            defaults: {
              unit,
              min: 0,
              thresholds,
              custom: {
                drawStyle: 'line',
                lineWidth: 1,
                fillOpacity: stacked === true ? 30 : 5,
                showPoints: 'never',
                spanNulls: false,
                stacking: { mode: stacked === true ? 'normal' : 'none', group: 'A' },
                thresholdsStyle: { mode: alarm === undefined ? 'off' : 'line' },
              },
            },
            overrides: [],
          },
          options: {
            legend: { displayMode: 'list', placement: 'bottom', showLegend: true },
            tooltip: { mode: 'multi', sort: 'desc' },
          },
        }),
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(join(import.meta.dirname, 'sluice.json'), `${JSON.stringify(dashboard(), null, 2)}\n`)
}
