/**
 * Charts over time: bars or lines, with gaps where nothing happened. The caption shows the values under the pointer, or
 * at the position chosen with the arrow keys. Colours are CSS variables.
 */
import UPlot from 'uplot/dist/uPlot.esm.js'
import { html, useEffect, useRef, useState } from './html.js'

const BAR = { size: [0.85, 40] }

/**
 * `lines`: { name, colour, values }, from the bottom of a stack to its top; null is a gap. `times` are Unix seconds.
 * `step`: seconds between two times. `kind`: bars, stack or lines. `clock`: formats a time.
 */
export function Chart({
  name,
  times,
  lines,
  kind = 'bars',
  show,
  clock,
  step,
  max,
  height = 96,
  utc = false,
}) {
  const place = useRef(null)
  const plot = useRef(null)
  const [pointed, setPointed] = useState(null)
  const shown = kind === 'stack' ? stacked(lines) : lines
  const data = [times, ...shown.map(({ values }) => values)]
  const latest = useRef(data)
  latest.current = data
  const form = JSON.stringify([
    kind,
    height,
    utc,
    step,
    max ?? null,
    lines.map(each => [each.name, each.colour]),
  ])

  useEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const build = () => {
      plot.current?.destroy()
      const options = optionsOf(
        { lines: shown, kind, show, clock, step, max, height, utc },
        place.current,
        setPointed,
      )
      plot.current = new UPlot(options, latest.current, place.current)
    }
    const fit = new ResizeObserver(() => {
      if (place.current !== null) plot.current?.setSize({ width: place.current.clientWidth, height })
    })
    build()
    dark.addEventListener('change', build)
    fit.observe(place.current)
    return () => {
      dark.removeEventListener('change', build)
      fit.disconnect()
      plot.current?.destroy()
      plot.current = null
    }
  }, [form])

  useEffect(() => {
    plot.current?.setData(latest.current)
  })

  const move = event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (step === undefined) return
    event.preventDefault()
    const next = at === null ? times.length - 1 : Math.min(times.length - 1, Math.max(0, at + step))
    plot.current.setCursor({ left: plot.current.valToPos(times[next], 'x'), top: 0 })
  }
  const leave = () => plot.current?.setCursor({ left: -10, top: -10 })

  const at = pointed !== null && pointed < times.length ? pointed : null
  const named = lines.map(line => ({
    ...line,
    value:
      at === null ? (line.now ?? line.values.findLast(value => value !== null) ?? null) : line.values[at],
  }))
  const told = at === null ? named : named.filter(({ value }) => value !== null && value !== 0).toReversed()
  return html`
    <figure class="chart" aria-label=${name} tabindex="0" onKeyDown=${move} onBlur=${leave}>
      <figcaption aria-live=${at === null ? 'off' : 'polite'}>
        <b>${name}</b>${' '}
        ${at !== null && html`<time class="dim">${clock(times[at])}</time>`}
        ${told.slice(0, 9).map(
          ({ name: own, colour, value }) => html`
            <span key=${own} class="value">
              <i class="swatch" style=${{ background: `var(${colour})` }}></i>
              ${(lines.length > 1 || kind === 'stack') && `${own} `}<b>${show(value)}</b>
            </span>
          `,
        )}
      </figcaption>
      <div ref=${place} class="plot" aria-hidden="true"></div>
    </figure>
  `
}

/** Sums for a stack: the highest line comes first, because later lines are drawn over it. */
function stacked(lines) {
  const sums = []
  return lines
    .map(({ values, ...line }) => ({
      ...line,
      values: values.map((value, at) => {
        if (value === null) return sums[at] ?? null
        sums[at] = (sums[at] ?? 0) + value
        return sums[at]
      }),
    }))
    .toReversed()
}

function optionsOf({ lines, kind, show, clock, step, max, height, utc }, place, onPointed) {
  const style = getComputedStyle(place)
  const colour = name => style.getPropertyValue(name).trim()
  const axis = {
    stroke: colour('--dim'),
    font: '11px system-ui, sans-serif',
    grid: { stroke: colour('--edge'), width: 1 },
    ticks: { show: false },
  }
  const isBars = kind !== 'lines'
  return {
    width: Math.max(120, place.clientWidth),
    height,
    legend: { show: false },
    cursor: { points: { show: !isBars }, drag: { x: false, y: false }, y: false },
    hooks: { setCursor: [({ cursor }) => onPointed(cursor.idx ?? null)] },
    // Leaves space for the last label.
    padding: [8, 18, 0, 0],
    ...(utc ? { tzDate: seconds => UPlot.tzDate(new Date(seconds * 1e3), 'Etc/UTC') } : {}),
    scales: {
      x: { time: true, range: (_, first, last) => [first - step * 0.6, last + step * 0.6] },
      y: { range: (_, __, top) => [0, max ?? (top > 0 ? top * 1.1 : 1)] },
    },
    axes: [
      { ...axis, size: 20, gap: 2, space: 70, values: (_, ticks) => ticks.map(clock) },
      { ...axis, size: 56, gap: 3, space: 28, values: (_, ticks) => ticks.map(show) },
    ],
    series: [
      {},
      ...lines.map(({ name, colour: own }) => ({
        label: name,
        stroke: colour(own),
        spanGaps: false,
        ...(isBars
          ? { fill: colour(own), width: 0, paths: UPlot.paths.bars(BAR), points: { show: false } }
          : // A value between two gaps is drawn as a point.
            { width: 1.5, points: { show: true, size: 4, fill: colour(own), width: 0 } }),
      })),
    ],
  }
}
