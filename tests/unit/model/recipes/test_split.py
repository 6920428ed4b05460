from model.parallel_text import ParallelFile
from model.recipes.from_scratch.split import write_split


def write_pairs(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return ParallelFile(path)


def read(path):
    return [tuple(line.split("\t")) for line in path.read_text("utf-8").splitlines()]


def test_every_pair_is_on_one_side_and_no_source_on_both(tmp_path):
    pairs = [(f"text {number % 300}", f"texto {number}") for number in range(900)]
    pairs += [(source.upper(), target) for source, target in pairs[:300]]
    file = write_pairs(tmp_path / "all.tsv", pairs)
    train, held_out = tmp_path / "train.tsv", tmp_path / "held-out.tsv"
    counts = write_split([file], train, held_out, one_in=10)
    assert counts == (len(read(train)), len(read(held_out)))
    assert sorted(read(train) + read(held_out)) == sorted(pairs)
    sources = [{source.lower() for source, _ in read(path)} for path in (train, held_out)]
    assert not sources[0] & sources[1]
    assert 10 <= len(sources[1]) <= 60


def test_a_second_split_is_the_first_again(tmp_path):
    file = write_pairs(tmp_path / "all.tsv", [(f"text {n}", f"texto {n}") for n in range(200)])
    texts = []
    for _ in range(2):
        write_split([file], tmp_path / "train.tsv", tmp_path / "held-out.tsv", one_in=5)
        texts.append((tmp_path / "train.tsv").read_bytes())
    assert texts[0] == texts[1]
