// The schemes to compare. `number` identifies a scheme in the model's exports.

export const SCHEMES = [
  { number: 0, letter: "R", dash: "", title: "selective repeat, by timeouts", name: () => "sr-rto", parity: false },
  {
    number: 1,
    letter: "N",
    dash: "7 3",
    title: "selective repeat, by reports of holes",
    name: () => "sr-nack",
    parity: false,
  },
  { number: 2, letter: "G", dash: "2 3", title: "go-back-N", name: () => "gbn", parity: false },
  {
    number: 3,
    letter: "M",
    dash: "12 3 2 3",
    title: "Reed-Solomon parity",
    name: (k, m) => `ec-mds:${k},${m}`,
    parity: true,
  },
  { number: 4, letter: "X", dash: "4 2", title: "XOR parity", name: (k, m) => `ec-xor:${k},${m}`, parity: true },
];

/** The name of the scheme with `settings`, in the form that the program and the library accept. */
export function nameOf(scheme, settings) {
  return scheme.name(settings.k, settings.m);
}
